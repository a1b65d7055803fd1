/** What holds the rows of a list of which only those in sight are drawn: they can be pressed while it scrolls too. */
import type { CustomContainerComponentProps } from "virtua";

// The library would let no click through until the list stands still. While words come in a thread never does, and a
// button that is pressed as it begins to move is never let go.
export function Rows({ style, ...rest }: CustomContainerComponentProps) {
  return <div {...rest} style={{ ...style, pointerEvents: undefined }} />;
}

export function RowList({ style, ...rest }: CustomContainerComponentProps) {
  return <ul {...rest} style={{ ...style, pointerEvents: undefined }} />;
}
