import { Tabs } from "../parts/tabs";

const TABS = [
  { to: "/settings", name: "Config" },
  { to: "/settings/text", name: "As text" },
  { to: "/settings/providers", name: "Providers" },
  { to: "/settings/plugins", name: "Plugins" },
  { to: "/settings/tokens", name: "Tokens" },
  { to: "/settings/doctor", name: "Doctor" },
];

/** What stands above each page of settings. */
export function SettingsHead() {
  return (
    <>
      <div className="head">
        <h1>Settings</h1>
      </div>
      <Tabs label="Settings" tabs={TABS} />
    </>
  );
}
