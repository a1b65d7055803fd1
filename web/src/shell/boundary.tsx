import { Component, type ReactNode } from "react";

/** A page that fails says so, and leaves the frame as it is. */
export class Boundary extends Component<{ children: ReactNode }, { failed: boolean }> {
  override state = { failed: false };

  static getDerivedStateFromError(): { failed: boolean } {
    return { failed: true };
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
