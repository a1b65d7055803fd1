/** After the page has drawn what changed, put the focus on the first thing that matches: it may have moved. */
export function focusSoon(selector: string): void {
  requestAnimationFrame(() =>
    requestAnimationFrame(() => {
      document.querySelector<HTMLElement>(selector)?.focus();
    }),
  );
}
