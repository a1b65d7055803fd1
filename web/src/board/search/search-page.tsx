/** A search at an address of its own. */
import { go, type PageProps } from "../../router/router";
import { SearchPanel } from "./search-panel";

export default function SearchPage({ query }: PageProps) {
  const q = query.get("q") ?? "";
  return (
    <>
      <div className="head">
        <h1>Search</h1>
      </div>
      <SearchPanel
        first={q}
        onText={(text) => go(text === "" ? "/search" : `/search?q=${encodeURIComponent(text)}`, { replace: true })}
      />
    </>
  );
}
