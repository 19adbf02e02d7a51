// Starts the views of a page: the host for which a notebook's widget manager is the other one.
(() => {
  const inflate = async (text) => {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).text();
  };
  const loaded = (globalThis.relaxlabModules ??= new Map());
  const load = (code) => {
    if (!loaded.has(code)) {
      loaded.set(code, inflate(code).then((text) => {
        const url = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
        return import(url).finally(() => URL.revokeObjectURL(url));
      }));
    }
    return loaded.get(code);
  };
  const start = async (host) => {
    const part = (name) => host.querySelector(`script[type="application/x-relaxlab-${name}"]`).textContent;
    const pre = host.querySelector("pre");
    try {
      const [{ addressedModel, localModel, views }, text] = await Promise.all([load(part("code")), inflate(part("state"))]);
      if (host.dataset.replaced) return; // by a live view
      const state = JSON.parse(text);
      const el = document.createElement("div");
      const model = host.dataset.address ? addressedModel(state) : localModel({ state });
      await views[host.dataset.kind].render({ model, el, views });
      pre.hidden = true;
      host.append(el);
      if (host.dataset.address) addEventListener("hashchange", () => location.reload());
      host.dataset.ready = "true";
    } catch (error) {
      pre.before(`This view could not start (${error}); its text follows.`);
      host.dataset.ready = "failed";
      throw error;
    }
  };
  // The outermost element that scrolls, null where only the page does. Where a notebook has one, the
  // margin must grow that element: a margin of the window ends at the elements that clip in between.
  const scroller = (host) => {
    let found = null;
    for (let e = host.parentElement; e && e !== document.body; e = e.parentElement) {
      if (/auto|scroll/.test(getComputedStyle(e).overflowY)) found = e;
    }
    return found;
  };
  const MARGIN = "600px"; // two thirds of a window: a view has started when it is scrolled to
  for (const host of document.querySelectorAll(".relaxlab-view:not([data-started])")) {
    host.dataset.started = "true";
    const near = new IntersectionObserver((entries) => {
      if (entries.some((entry) => entry.isIntersecting)) {
        near.disconnect();
        start(host);
      }
    }, { root: scroller(host), rootMargin: MARGIN, scrollMargin: MARGIN });
    near.observe(host);
  }
})();
