/**
 * What somebody said, for reading: text as it is, with what would be invisible or would turn other text around
 * shown by its code. Letters of any script, emoji and blanks stay as they are.
 */
import { Mark, NAMES, code } from "./verbatim";

// Joiners are part of words and emoji; new lines and tabs are layout.
const HIDDEN = /((?!\n|\t|\u200c|\u200d)[\p{Cc}\p{Cf}\p{Cn}\p{Co}\p{Cs}\p{Zl}\p{Zp}\u115f\u1160\u2800\u3164\uffa0])/u;

export function Told({ text }: { text: string }) {
  const parts = text.replaceAll("\r\n", "\n").split(HIDDEN);
  return (
    <bdi>
      {parts.map((part, index) =>
        index % 2 === 0 ? part : <Mark key={index} name={NAMES[part] ?? code(part)} title={code(part)} />,
      )}
    </bdi>
  );
}
