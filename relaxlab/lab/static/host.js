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
      const [{ localModel, views }, state] = await Promise.all([load(part("code")), inflate(part("state"))]);
      const el = document.createElement("div");
      await views[host.dataset.kind].render({ model: localModel({ state: JSON.parse(state) }), el, views });
      pre.hidden = true;
      host.append(el);
      host.dataset.ready = "true";
    } catch (error) {
      pre.before(`This view could not start (${error}); its text follows.`);
      host.dataset.ready = "failed";
      throw error;
    }
  };
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) {
        near.unobserve(entry.target);
        start(entry.target);
      }
    }
  }, { rootMargin: "600px" });
  for (const host of document.querySelectorAll(".relaxlab-view:not([data-started])")) {
    host.dataset.started = "true";
    near.observe(host);
  }
})();
