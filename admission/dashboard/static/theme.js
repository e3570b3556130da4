// Before anything is painted: the colours that were chosen, so that they do not change under the eyes.
const chosen = localStorage.getItem("sluice-theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
