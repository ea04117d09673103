// Give images in JupyterLab and Jupyter Notebook the alt text that an output's metadata holds.
//
// JupyterLab draws an image from `image/png` or `image/svg+xml`, and takes its width and height from
// the metadata, but not its `alt`, which IPython.display.Image writes too. This file is a prebuilt
// extension (a container of Module Federation) as it is: there is nothing to compile.

(() => {
  let shared; // JupyterLab's own packages, by name and version

  async function altText() {
    const [provided] = Object.values(shared["@jupyterlab/rendermime"]);
    const lab = (await provided.get())();

    const described = (name, Renderer, factory) => {
      class WithAltText extends Renderer {
        async render(model) {
          await super.render(model);
          const { alt } = model.metadata[this.mimeType] ?? {};
          const image = this.node.querySelector("img");
          if (image && typeof alt === "string") image.alt = alt;
        }
      }
      const createRenderer = (options) => new WithAltText(options);
      return { id: `labkit:${name}`, dataType: "string", rendererFactory: { ...factory, createRenderer } };
    };

    return [
      described("alt-text", lab.RenderedImage, lab.imageRendererFactory),
      described("alt-text-svg", lab.RenderedSVG, lab.svgRendererFactory),
    ];
  }

  window._JUPYTERLAB ??= {};
  window._JUPYTERLAB.labkit = {
    init: (scope) => { shared = scope; },
    get: async () => {
      const module = await altText();
      return () => module;
    },
  };
})();
