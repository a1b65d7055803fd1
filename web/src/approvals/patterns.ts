const PLAIN = /^[\w@%+=:,./~-]+$/;

/** Patterns that a command suggests: its very words, then its program and what follows. The gateway judges them. */
export function suggestions(command: string): string[] {
  const words = command.trim().split(/ +/);
  if (!words.every((word) => PLAIN.test(word))) return [];
  const [program, verb] = words;
  if (program === undefined) return [];
  const found = [words.join(" ")];
  if (verb !== undefined && words.length > 2 && !verb.startsWith("-")) found.push(`${program} ${verb} *`);
  if (words.length > 1) found.push(`${program} *`);
  return found;
}
