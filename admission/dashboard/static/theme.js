// Applies the chosen theme before the first paint, so that colours do not flash.
const chosen = localStorage.getItem("sluice-theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
