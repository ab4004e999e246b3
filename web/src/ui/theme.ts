// Light, dark, or as the system has it: sets what tokens.css reads, and changes over smoothly.
import type { Theme } from "../core/types.ts";
import { setTool, tool } from "./controls.ts";
import { follow, type Page } from "./page.ts";
import type { IconName } from "./icons.ts";

export const THEMES: readonly { theme: Theme; label: string; icon: IconName }[] = [
  { theme: "system", label: "System", icon: "screen" },
  { theme: "light", label: "Light", icon: "sun" },
  { theme: "dark", label: "Dark", icon: "moon" },
];

export function applyTheme(theme: Theme, smoothly: boolean): void {
  const root = document.documentElement;
  if (smoothly) {
    root.classList.add("theme-changing");
    setTimeout(() => root.classList.remove("theme-changing"), 240);
  }
  if (theme === "system") delete root.dataset["theme"];
  else root.dataset["theme"] = theme;
  // The colour of the browser's own bars on phones.
  for (const meta of document.querySelectorAll<HTMLMetaElement>("meta[name=theme-color]")) {
    const dark = theme === "system" ? meta.media.includes("dark") : theme === "dark";
    meta.content = dark ? "#15171b" : "#fbfbfa";
  }
}

/** Goes through the three. */
export function themeTool(page: Page): HTMLButtonElement {
  const settings = page.core.settings;
  const made = tool("screen", "Theme", () => settings.setTheme(after(settings.theme.get()).theme), { class: "head__theme" });
  follow(settings.theme, (theme) => {
    const shown = THEMES.find((each) => each.theme === theme);
    setTool(made, shown?.icon ?? "screen", `Theme: ${theme}. Change to ${after(theme).theme}`);
  });
  return made;
}

function after(theme: Theme): { theme: Theme } {
  const at = THEMES.findIndex((each) => each.theme === theme);
  return THEMES[(at + 1) % THEMES.length] ?? { theme: "system" };
}
