// The reader's choice between light, dark and whatever the system has. It is not a secret, so it outlives the tab.
"use strict";

(() => {
  const CHOICES = ["auto", "light", "dark"];
  const dark = matchMedia("(prefers-color-scheme: dark)");

  function stored() {
    try {
      const choice = localStorage.getItem("interlock-theme");
      return CHOICES.includes(choice) ? choice : "auto";
    } catch {
      return "auto"; // Storage may be forbidden; then the system decides.
    }
  }

  function apply(choice) {
    const root = document.documentElement;
    root.dataset.choice = choice;
    // Always one of the two, so that the drawing of a machine knows which of its palettes to take.
    root.dataset.theme = choice === "auto" ? (dark.matches ? "dark" : "light") : choice;
  }

  globalThis.interlockTheme = {
    next() {
      const choice = CHOICES[(CHOICES.indexOf(document.documentElement.dataset.choice) + 1) % CHOICES.length];
      try {
        localStorage.setItem("interlock-theme", choice);
      } catch {
        // It then lasts as long as the page.
      }
      apply(choice);
      return choice;
    },
  };
  dark.addEventListener("change", () => apply(document.documentElement.dataset.choice));
  apply(stored());
})();
