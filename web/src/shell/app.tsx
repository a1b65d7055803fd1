import { Suspense, useEffect } from "react";

import { begin, useLogin } from "./login-state";
import { Away } from "./connection";
import { Frame } from "./frame";
import { Login } from "./login";
import { Loading } from "../parts/states";

export function App() {
  const login = useLogin();
  useEffect(() => void begin(), []);
  switch (login.is) {
    case "asking":
      return <Loading what="Holdfast" />;
    case "away":
      return <Away />;
    case "out":
      return <Login problem={login.problem} />;
    case "in":
      return (
        <Suspense fallback={<Loading what="the page" />}>
          <Frame who={login.who} />
        </Suspense>
      );
  }
}
