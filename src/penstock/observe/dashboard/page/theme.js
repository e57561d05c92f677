// Runs before the page is drawn, so that it does not flash in the other colours.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("penstock-theme");
  } catch {
    // A browser that keeps nothing: the system's theme it is.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
