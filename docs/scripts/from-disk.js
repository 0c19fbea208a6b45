// Browsers let no page that is opened from disk load the index of the search: without it, there is no
// search box, and letters are no shortcuts to it or to other pages.
if (location.protocol === "file:") {
  document.documentElement.dataset.fromDisk = "";
  addEventListener("keydown", (event) => event.stopImmediatePropagation(), true);
}
