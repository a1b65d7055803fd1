/** A config's JSON Schema as a list of settings that a form can show. */

export interface Schema {
  $ref?: string;
  type?: string;
  enum?: unknown[];
  const?: unknown;
  anyOf?: Schema[];
  allOf?: Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
  additionalProperties?: Schema | boolean;
  description?: string;
  default?: unknown;
  minimum?: number;
  maximum?: number;
  $defs?: Record<string, Schema>;
}

export type Kind = "switch" | "choice" | "number" | "text" | "lines" | "json";

export interface Setting {
  /** The keys that lead to it. */
  path: readonly string[];
  kind: Kind;
  description: string;
  /** What holds where nothing is written; undefined where something must be. */
  fallback: unknown;
  options: readonly string[];
  optional: boolean;
  minimum: number | undefined;
  maximum: number | undefined;
}

const DEEPEST = 8;

/** Every setting below a section, in the order of the schema; maps and lists of objects are one setting each. */
export function settingsOf(root: Schema, section: string): Setting[] {
  const top = root.properties?.[section];
  if (top === undefined) return [];
  return walked(root, top, [section], DEEPEST);
}

function walked(root: Schema, given: Schema, path: readonly string[], left: number): Setting[] {
  const schema = resolved(root, given);
  const inner = left > 0 ? schema.properties : undefined;
  if (inner !== undefined && Object.keys(inner).length > 0 && !isMap(schema)) {
    return Object.entries(inner).flatMap(([name, one]) => walked(root, one, [...path, name], left - 1));
  }
  return [leaf(root, given, path)];
}

function isMap(schema: Schema): boolean {
  return typeof schema.additionalProperties === "object";
}

function leaf(root: Schema, given: Schema, path: readonly string[]): Setting {
  const choices = (given.anyOf ?? [given]).map((one) => resolved(root, one));
  const real = choices.filter((one) => one.type !== "null");
  const [first = {}] = real;
  const options = real.flatMap((one) => one.enum ?? (one.const === undefined ? [] : [one.const])).map(String);
  const schema = resolved(root, given);
  return {
    path,
    kind: kindOf(root, real, options),
    description: given.description ?? schema.description ?? "",
    fallback: given.default ?? schema.default,
    options,
    optional: choices.some((one) => one.type === "null"),
    minimum: first.minimum,
    maximum: first.maximum,
  };
}

function kindOf(root: Schema, real: readonly Schema[], options: readonly string[]): Kind {
  const types = new Set(real.map((one) => one.type));
  if (options.length > 0 && real.every((one) => one.enum !== undefined || one.const !== undefined)) return "choice";
  if (types.size === 1 && types.has("boolean")) return "switch";
  if (types.size === 1 && (types.has("integer") || types.has("number"))) return "number";
  if ([...types].every((type) => type === "string" || type === "integer" || type === "number")) return "text";
  const items = real.find((one) => one.type === "array")?.items;
  if (types.size === 1 && items !== undefined && resolved(root, items).type === "string") return "lines";
  return "json";
}

function resolved(root: Schema, schema: Schema): Schema {
  const name = schema.$ref?.replace("#/$defs/", "");
  const found = name === undefined ? undefined : root.$defs?.[name];
  if (found !== undefined) return { ...found, ...(schema.description === undefined ? {} : { description: schema.description }) };
  const [only] = schema.allOf ?? [];
  return only === undefined ? schema : { ...resolved(root, only), ...schema };
}

/** What stands at a path. */
export function valueAt(config: unknown, path: readonly string[]): unknown {
  return path.reduce<unknown>((inner, key) => (typeof inner === "object" && inner !== null ? (inner as Record<string, unknown>)[key] : undefined), config);
}

/** A merge patch (RFC 7396) that writes values at their paths; undefined takes a key out. */
export function patchOf(changes: ReadonlyMap<string, unknown>): Record<string, unknown> {
  const patch: Record<string, unknown> = {};
  for (const [path, value] of changes) {
    const keys = path.split(".");
    const last = keys.pop() ?? "";
    let inner = patch;
    for (const key of keys) inner = (inner[key] ??= {}) as Record<string, unknown>;
    inner[last] = value === undefined ? null : value;
  }
  return patch;
}

/** What was typed into a field as the setting's value; a thrown error says what is wrong with it. */
export function readAs(setting: Setting, text: string): unknown {
  const words = text.trim();
  if (words === "" && setting.kind !== "lines") return undefined;
  switch (setting.kind) {
    case "number": {
      const number = Number(words);
      if (!Number.isFinite(number)) throw new Error("That is not a number.");
      if (setting.minimum !== undefined && number < setting.minimum) throw new Error(`It is at least ${setting.minimum}.`);
      if (setting.maximum !== undefined && number > setting.maximum) throw new Error(`It is at most ${setting.maximum}.`);
      return number;
    }
    case "lines":
      return words === "" ? [] : words.split("\n").map((line) => line.trim()).filter((line) => line !== "");
    case "json":
      try {
        return JSON.parse(words) as unknown;
      } catch {
        throw new Error("That is not JSON.");
      }
    case "text":
      return /^\d+$/.test(words) && typeof setting.fallback === "number" ? Number(words) : words;
    default:
      return words;
  }
}

/** A value as it stands in a field. */
export function shownAs(setting: Setting, value: unknown): string {
  if (value === undefined || value === null) return "";
  if (setting.kind === "lines") return (value as string[]).join("\n");
  if (setting.kind === "json") return JSON.stringify(value, null, 2);
  return plain(value);
}

/** A number, a word, a yes or no as it is read; anything else as JSON. */
export function plain(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}
