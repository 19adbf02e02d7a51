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
