interface ChoiceProps<S extends string> {
  label: string;
  value: S;
  options: readonly (readonly [S, string])[];
  onChange: (value: S) => void;
  disabled?: boolean;
  className?: string;
}

/** One of a few, beside what it is about: its label is spoken, not shown. */
export function Choice<S extends string>({ label, value, options, onChange, ...rest }: ChoiceProps<S>) {
  return (
    <select aria-label={label} value={value} onChange={(event) => onChange(event.target.value as S)} {...rest}>
      {options.map(([name, word]) => (
        <option key={name} value={name}>
          {word}
        </option>
      ))}
    </select>
  );
}
