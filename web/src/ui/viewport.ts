// Browsers that lay their keyboard over the page (Safari on phones) tell its height only through the visual viewport: the
// page takes what is left, so that the composer stays above the keys.

export function followKeyboard(): void {
  const viewport = window.visualViewport;
  if (viewport === null) return;
  const fit = (): void => {
    const root = document.documentElement;
    // Zoomed in, the viewport is a part of the page and says nothing about keys.
    if (viewport.scale === 1 && viewport.height < window.innerHeight - 1) root.style.setProperty("--view", `${viewport.height}px`);
    else root.style.removeProperty("--view");
  };
  viewport.addEventListener("resize", fit);
  fit();
}
