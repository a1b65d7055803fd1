/** The few signs that the pages use. A sign never stands alone: what it does is said beside it. */
const PATHS = {
  pin: "M6 2h4l-.6 4 2.6 2.4V10H4V8.4L6.6 6zM8 10v4",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10zm3.6-1.4L14 14",
  edit: "M3 13l.6-2.6L10.8 3.2a1.2 1.2 0 0 1 1.7 0l.3.3a1.2 1.2 0 0 1 0 1.7L5.6 12.4zM9.8 4.2l2 2",
  back: "M9.5 3.5L5 8l4.5 4.5",
  next: "M6.5 3.5L11 8l-4.5 4.5",
  down: "M3.5 6.5L8 11l4.5-4.5",
  up: "M8 13V3M4 7l4-4 4 4",
  note: "M3 2.5h10v7.6L9.6 13.5H3zM13 10H9.5v3.5M5.5 5.5h5M5.5 8h3",
  close: "M4 4l8 8M12 4l-8 8",
  home: "M2.5 7.5L8 2.8l5.5 4.7M4 6.6v6.6h8V6.6M6.6 13V9.4h2.8V13",
  chat: "M2.5 3h11v7.6H7.2L4 13.4v-2.8H2.5z",
  board: "M2.5 2.8h3v10.4h-3zM6.5 2.8h3v6.6h-3zM10.5 2.8h3v8.6h-3z",
  shield: "M8 2l5 1.8v3.8c0 3-2.1 5.2-5 6.4-2.9-1.2-5-3.4-5-6.4V3.8zM5.8 8l1.6 1.6 3-3.2",
  chart: "M2.5 13.5h11M4 11V8M7 11V4.5M10 11V6.5M13 11V3",
  list: "M5.5 4h8M5.5 8h8M5.5 12h8M2.4 4h.4M2.4 8h.4M2.4 12h.4",
  map: "M4 5.2a1.7 1.7 0 1 0 0-3.4 1.7 1.7 0 0 0 0 3.4zM12 8.2a1.7 1.7 0 1 0 0-3.4 1.7 1.7 0 0 0 0 3.4zM5 14a1.7 1.7 0 1 0 0-3.4A1.7 1.7 0 0 0 5 14zM5.5 4.3l5 1.6M10.7 7.7l-4.4 3.5M4.1 5.2l.7 5.4",
  more: "M3.5 8h.2M8 8h.2M12.5 8h.2",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  plus: "M8 3v10M3 8h10",
  theme: "M8 13.5a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11zM8 2.5v11M10.5 3.2v9.6",
  minus: "M3 8h10",
  whole: "M2.5 6V2.5H6M10 2.5h3.5V6M13.5 10v3.5H10M6 13.5H2.5V10",
  check: "M3 8.5L6.5 12 13 4.5",
  copy: "M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z",
  clip: "M12.5 7L7.6 11.9a2.4 2.4 0 0 1-3.4-3.4l5-5a1.6 1.6 0 0 1 2.3 2.3l-4.8 4.8a.8.8 0 0 1-1.1-1.2l4.3-4.2",
  stop: "M4.5 4.5h7v7h-7z",
  spark: "M8 2l1.3 4.7L14 8l-4.7 1.3L8 14l-1.3-4.7L2 8l4.7-1.3z",
  tool: "M13.3 4.4l-2 2-1.7-1.7 2-2A3.3 3.3 0 0 0 7.4 7L2.6 11.8l1.6 1.6L9 8.6a3.3 3.3 0 0 0 4.3-4.2z",
  eye: "M1.8 8S4 3.8 8 3.8 14.2 8 14.2 8 12 12.2 8 12.2 1.8 8 1.8 8zM8 9.8a1.8 1.8 0 1 0 0-3.6 1.8 1.8 0 0 0 0 3.6z",
  again: "M13 8a5 5 0 1 1-1.6-3.7M13 2.5v3h-3",
  clock: "M8 13.5a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11zM8 5v3.2l2.2 1.3",
  warn: "M8 2.5l6 10.8H2zM8 6.5v3.2M8 11.4v.2",
  offline: "M2 6.4a9 9 0 0 1 12 0M4.2 9a5.6 5.6 0 0 1 7.6 0M6.4 11.4a2.4 2.4 0 0 1 3.2 0M2.5 2.5l11 11",
  out: "M9.5 3H3v10h6.5M6.5 8h7M11 5.5L13.5 8 11 10.5",
  memory: "M3 4.2C3 3 5.2 2 8 2s5 1 5 2.2S10.8 6.4 8 6.4 3 5.4 3 4.2zM3 4.2v7.6C3 13 5.2 14 8 14s5-1 5-2.2V4.2M3 8c0 1.2 2.2 2.2 5 2.2S13 9.2 13 8",
  agent: "M8 7.4a2.7 2.7 0 1 0 0-5.4 2.7 2.7 0 0 0 0 5.4zM2.8 14c.3-2.8 2.4-4.4 5.2-4.4s4.9 1.6 5.2 4.4",
  people: "M5.8 7.6a2.3 2.3 0 1 0 0-4.6 2.3 2.3 0 0 0 0 4.6zM1.6 13.4c.2-2.5 1.9-3.8 4.2-3.8s4 1.3 4.2 3.8M10.4 3.3a2.2 2.2 0 0 1 0 4.1M11.6 9.9c1.7.4 2.7 1.6 2.8 3.5",
  plug: "M5.5 2v3M10.5 2v3M3.8 5h8.4v2.6A4.2 4.2 0 0 1 8 11.8a4.2 4.2 0 0 1-4.2-4.2zM8 11.8V14",
  ledger: "M3.5 2h9v12h-9zM5.8 5.2h4.4M5.8 8h4.4M5.8 10.8h2.6",
  gear: "M8 10.2a2.2 2.2 0 1 0 0-4.4 2.2 2.2 0 0 0 0 4.4zM8 1.8v1.7M8 12.5v1.7M1.8 8h1.7M12.5 8h1.7M3.6 3.6l1.2 1.2M11.2 11.2l1.2 1.2M12.4 3.6l-1.2 1.2M4.8 11.2l-1.2 1.2",
  keys: "M2 4h12v8H2zM4.4 6.6h.2M7 6.6h.2M9.6 6.6h.2M11.8 6.6h.2M5 9.4h6",
};

export type IconName = keyof typeof PATHS;

export function Icon({ name, filled = false, size = 16 }: { name: IconName; filled?: boolean; size?: number }) {
  return (
    <svg className="icon" viewBox="0 0 16 16" width={size} height={size} aria-hidden="true" focusable="false">
      <path
        d={PATHS[name]}
        fill={filled ? "currentColor" : "none"}
        stroke="currentColor"
        strokeWidth="1.4"
        strokeLinecap="round"
        strokeLinejoin="round"
      />
    </svg>
  );
}
