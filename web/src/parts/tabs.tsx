import { Link, useLocation } from "../router/router";

interface Tab {
  to: string;
  name: string;
}

/** Pages that belong together, one of which is open. */
export function Tabs({ label, tabs }: { label: string; tabs: readonly Tab[] }) {
  const { pathname } = useLocation();
  return (
    <nav className="tabs" aria-label={label}>
      {tabs.map((tab) => (
        <Link key={tab.to} to={tab.to} aria-current={pathname === tab.to.split("?")[0] ? "page" : undefined}>
          {tab.name}
        </Link>
      ))}
    </nav>
  );
}
