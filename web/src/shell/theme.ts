/** Light, dark, or as the system has it; a choice of this browser. */
import { useState } from "react";

export type Theme = "system" | "light" | "dark";

const KEY = "holdfast.theme";
const NEXT: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };

export function currentTheme(): Theme {
  const kept = localStorage.getItem(KEY);
  return kept === "light" || kept === "dark" ? kept : "system";
}

export function applyTheme(theme: Theme): void {
  if (theme === "system") localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, theme);
  document.documentElement.dataset.theme = theme;
}

export function useTheme(): [Theme, () => void] {
  const [theme, setTheme] = useState(currentTheme);
  return [
    theme,
    () => {
      applyTheme(NEXT[theme]);
      setTheme(NEXT[theme]);
    },
  ];
}
