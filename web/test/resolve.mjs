// Node reads TypeScript by itself, but wants to be told how a file's name ends.
import { registerHooks } from "node:module";

registerHooks({
  resolve(specifier, context, next) {
    const isOurs = specifier.startsWith(".") && !/\.\w+$/.test(specifier);
    return next(isOurs ? `${specifier}.ts` : specifier, context);
  },
});
