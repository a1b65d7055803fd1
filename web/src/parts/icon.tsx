/** The few signs that the pages use. A sign never stands alone: what it does is said beside it. */
const PATHS = {
  pin: "M6 2h4l-.6 4 2.6 2.4V10H4V8.4L6.6 6zM8 10v4",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10zm3.6-1.4L14 14",
  edit: "M3 13l.6-2.6L10.8 3.2a1.2 1.2 0 0 1 1.7 0l.3.3a1.2 1.2 0 0 1 0 1.7L5.6 12.4zM9.8 4.2l2 2",
  back: "M9.5 3.5L5 8l4.5 4.5",
  next: "M6.5 3.5L11 8l-4.5 4.5",
  note: "M3 2.5h10v7.6L9.6 13.5H3zM13 10H9.5v3.5M5.5 5.5h5M5.5 8h3",
  close: "M4 4l8 8M12 4l-8 8",
};

export function Icon({ name, filled = false }: { name: keyof typeof PATHS; filled?: boolean }) {
  return (
    <svg className="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} fill={filled ? "currentColor" : "none"} stroke="currentColor" strokeWidth="1.4" />
    </svg>
  );
}
