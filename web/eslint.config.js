import js from "@eslint/js";
import reactHooks from "eslint-plugin-react-hooks";
import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["node_modules", "eslint.config.js", "src/api/schema.d.ts"] },
  js.configs.recommended,
  ...tseslint.configs.strictTypeChecked,
  ...tseslint.configs.stylisticTypeChecked,
  reactHooks.configs.flat["recommended-latest"],
  {
    languageOptions: { parserOptions: { projectService: true } },
    rules: {
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
      "@typescript-eslint/no-confusing-void-expression": ["error", { ignoreArrowShorthand: true }],
      // Text from agents is text: nothing may make it markup.
      "no-restricted-syntax": [
        "error",
        { selector: "JSXAttribute[name.name='dangerouslySetInnerHTML']", message: "Text stays text." },
      ],
    },
  },
  // Plain JavaScript: what it tests is typed, and Node runs both without a step between.
  { files: ["test/**"], ...tseslint.configs.disableTypeChecked },
  {
    files: ["public/sw.js"],
    ...tseslint.configs.disableTypeChecked,
    languageOptions: {
      parserOptions: { projectService: false },
      globals: Object.fromEntries(["addEventListener", "caches", "clients", "fetch", "location", "registration", "skipWaiting", "URL"].map((name) => [name, "readonly"])),
    },
  },
);
