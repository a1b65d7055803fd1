/** Go anywhere, do anything, by typing a few letters of it. */
import { Command } from "cmdk";
import { useEffect, useRef } from "react";

import { nameOf } from "../chat/names";
import { useTopics } from "../board/places";
import { useApi } from "../live/query";
import { Icon, type IconName } from "../parts/icon";
import { go } from "../router/router";
import { routes } from "../routes";
import { mayOfferNotices } from "./installed";
import { logOut, useLoggedIn } from "./login-state";
import { applyTheme } from "./theme";

export default function Palette({ close, onHelp }: { close: () => void; onHelp: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const { data: chats = [] } = useApi("/api/chats", { query: { limit: 100 } }, { live: ["session.", "turn."] });
  const { rows: topics } = useTopics();
  const who = useLoggedIn();
  const { scope, spaces } = who;
  useEffect(() => dialog.current?.showModal(), []);
  const act = (work: () => void) => () => {
    close();
    work();
  };
  return (
    <dialog
      ref={dialog}
      className="palette"
      aria-label="Go to or do"
      onClose={close}
      onClick={(event) => {
        if (event.target === dialog.current) close();
      }}
    >
      <Command label="Go to or do" loop>
        <Command.Input placeholder="Go to a page, a chat or a topic" autoFocus />
        <Command.List>
          <Command.Empty>Nothing is called that.</Command.Empty>
          {scope !== "read" && spaces === null && (
            <Command.Group heading="Begin">
              <Row icon="plus" name="New chat" onSelect={act(() => go("/chat?new=1"))} />
            </Command.Group>
          )}
          <Command.Group heading="Pages">
            {routes.flatMap((route) =>
              route.path.includes(":") || route.may?.(who) === false
                ? []
                : [<Row key={route.path} icon={route.icon ?? "next"} name={route.title} id={route.path} onSelect={act(() => go(route.path))} />],
            )}
          </Command.Group>
          <Command.Group heading="Chats">
            {chats.map((chat) => (
              <Row
                key={chat.sessionId}
                icon="chat"
                name={nameOf(chat)}
                id={chat.sessionKey}
                onSelect={act(() => go(`/chat?session=${encodeURIComponent(chat.sessionKey)}`))}
              />
            ))}
          </Command.Group>
          <Command.Group heading="Topics">
            {topics.slice(0, 300).map((topic) => (
              <Row
                key={topic.id}
                icon="board"
                name={topic.name}
                id={topic.id}
                onSelect={act(() => go(`/board/topics/${encodeURIComponent(topic.id)}`))}
              />
            ))}
          </Command.Group>
          <Command.Group heading="Do">
            {mayOfferNotices() && (
              <Row icon="shield" name="Notify me when something waits for me" onSelect={act(() => void Notification.requestPermission())} />
            )}
            <Row icon="keys" name="Keyboard shortcuts" onSelect={act(onHelp)} />
            <Row icon="spark" name="Use the light theme" onSelect={act(() => applyTheme("light"))} />
            <Row icon="spark" name="Use the dark theme" onSelect={act(() => applyTheme("dark"))} />
            <Row icon="spark" name="Use the theme of the system" onSelect={act(() => applyTheme("system"))} />
            <Row icon="out" name="Log out" onSelect={act(() => void logOut())} />
          </Command.Group>
        </Command.List>
      </Command>
    </dialog>
  );
}

function Row({ icon, name, id, onSelect }: { icon: IconName; name: string; id?: string; onSelect: () => void }) {
  return (
    <Command.Item value={`${name} ${id ?? ""}`} onSelect={onSelect}>
      <Icon name={icon} /> <bdi>{name}</bdi>
    </Command.Item>
  );
}
