import { Told } from "../../parts/verbatim";
import { pieces } from "../highlight";

/** A text with the words of a question marked in it. */
export function Highlighted({ text, query }: { text: string; query: string }) {
  return pieces(text, query).map((piece, index) =>
    piece.hit ? (
      <mark key={index}>
        <Told text={piece.text} />
      </mark>
    ) : (
      <Told key={index} text={piece.text} />
    ),
  );
}
