import { useEffect, useRef } from "react";

import { Link, useLocation } from "../router/router";

interface Tab {
  to: string;
  name: string;
}

interface TabsProps {
  label: string;
  tabs: readonly Tab[];
  /** Where one is, if the path alone does not say so. */
  current?: string;
}

/** Pages that belong together, one of which is open; it is in sight even where not all of them are. */
export function Tabs({ label, tabs, current }: TabsProps) {
  const { pathname } = useLocation();
  const row = useRef<HTMLElement>(null);
  const open = current ?? tabs.find((tab) => tab.to.split("?")[0] === pathname)?.to;
  useEffect(() => {
    const [box, tab] = [row.current, row.current?.querySelector<HTMLElement>("[aria-current]")];
    if (box == null || tab == null || box.scrollWidth <= box.clientWidth) return;
    box.scrollTo({ left: tab.offsetLeft - (box.clientWidth - tab.offsetWidth) / 2 });
  }, [open]);
  return (
    <nav className="tabs" aria-label={label} ref={row}>
      {tabs.map((tab) => (
        <Link key={tab.to} to={tab.to} aria-current={tab.to === open ? "page" : undefined}>
          {tab.name}
        </Link>
      ))}
    </nav>
  );
}
