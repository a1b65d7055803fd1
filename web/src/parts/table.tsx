import type { ReactNode } from "react";

export interface Column<T> {
  name: string;
  cell: (row: T) => ReactNode;
  /** On a phone each row is a list: what does not speak for itself has its name before it. */
  named?: boolean;
  /** `head`: what the row is about; `number`: one above the other; `does`: buttons, at the end. */
  as?: "head" | "number" | "code" | "nowrap" | "quiet" | "does";
}

interface TableProps<T> {
  rows: readonly T[];
  keyOf: (row: T) => string | number;
  columns: readonly Column<T>[];
  /** A row that is the sum of the others. */
  isSum?: (row: T) => boolean;
}

/** Rows of the same kind, in columns; where there is no room for columns, each row is a list. */
export function Table<T>({ rows, keyOf, columns, isSum }: TableProps<T>) {
  return (
    <div className="scroll">
      <table className="stack">
        <thead>
          <tr>
            {columns.map(({ name, as }) => (
              <th key={name} scope="col" className={as === "head" ? undefined : as}>
                {as === "does" ? <span className="spoken">{name}</span> : name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={keyOf(row)} className={isSum?.(row) === true ? "sum" : undefined}>
              {columns.map(({ name, cell, named, as }) =>
                as === "head" ? (
                  <th key={name} scope="row">
                    {cell(row)}
                  </th>
                ) : (
                  <td key={name} className={as} data-name={named === true ? name : undefined}>
                    {cell(row)}
                  </td>
                ),
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
