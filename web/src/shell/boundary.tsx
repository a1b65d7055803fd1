import { Component, type ReactNode } from "react";

/** A page that fails says so, and leaves the frame as it is. One whose files went with an update is loaded anew, by itself. */
export class Boundary extends Component<{ children: ReactNode }, { failed: boolean }> {
  override state = { failed: false };

  static getDerivedStateFromError(): { failed: boolean } {
    return { failed: true };
  }

  override componentDidCatch(error: unknown): void {
    if (error instanceof TypeError && /import|module/i.test(error.message)) void loadAnew();
  }

  override render(): ReactNode {
    if (!this.state.failed) return this.props.children;
    return (
      <section role="alert">
        <h1>This page failed</h1>
        <p>
          The browser&rsquo;s console says why. If Holdfast was updated meanwhile, reloading the page mends it.
        </p>
        <button type="button" onClick={() => location.reload()}>
          Reload
        </button>
      </section>
    );
  }
}

const LAST = "holdfast:loaded-anew";
const PAUSE = 60_000;

/** Not again within a minute, and only while the gateway answers: what cannot be loaded then is gone. */
async function loadAnew(): Promise<void> {
  if (Date.now() - Number(sessionStorage.getItem(LAST) ?? 0) < PAUSE) return;
  try {
    if (!(await fetch("/healthz", { cache: "no-store" })).ok) return;
  } catch {
    return;
  }
  sessionStorage.setItem(LAST, String(Date.now()));
  location.reload();
}
