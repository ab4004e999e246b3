import js from "@eslint/js";
import { defineConfig } from "eslint/config";
import ts from "typescript-eslint";

export default defineConfig(
  { ignores: ["dist/", "docs/", "node_modules/"] },
  js.configs.recommended,
  ...ts.configs.strictTypeChecked,
  {
    languageOptions: { parserOptions: { projectService: { allowDefaultProject: ["eslint.config.js"] }, tsconfigRootDir: import.meta.dirname } },
    rules: {
      // What models, servers and imports send reaches the document only by way of core/markdown.ts or as text.
      "no-restricted-properties": ["error",
        { property: "innerHTML", message: "build elements, or take core/markdown.ts" },
        { property: "outerHTML", message: "build elements, or take core/markdown.ts" },
        { property: "insertAdjacentHTML", message: "build elements, or take core/markdown.ts" }],
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-console": "error",
      "max-lines": ["error", 800],
      "max-lines-per-function": ["error", { max: 80, skipComments: true, skipBlankLines: true }],
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
      "@typescript-eslint/no-confusing-void-expression": ["error", { ignoreArrowShorthand: true, ignoreVoidReturningFunctions: true }],
      "@typescript-eslint/no-unused-vars": ["error", { argsIgnorePattern: "^_", varsIgnorePattern: "^_", destructuredArrayIgnorePattern: "^_" }],
    },
  },
  { files: ["tests/**"], rules: { "max-lines-per-function": "off", "no-console": "off", "@typescript-eslint/no-floating-promises": "off", "@typescript-eslint/no-unnecessary-condition": "off" } },
);
