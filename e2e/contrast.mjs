// How well a text can be read: the contrast between an element and what lies behind it, as WCAG counts it. 4.5 is enough for text.
export const contrast = (page, selector) =>
  page.locator(selector).first().evaluate((element) => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const rgba = (colour) => {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = colour;
      canvas.fillRect(0, 0, 1, 1);
      return canvas.getImageData(0, 0, 1, 1).data;
    };
    const luminance = ([r, g, b]) => {
      const part = (value) => (value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
      return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
    };
    let behind = element;
    while (behind && rgba(getComputedStyle(behind).backgroundColor)[3] === 0) behind = behind.parentElement;
    const light = luminance(rgba(getComputedStyle(element).color));
    const dark = luminance(rgba(getComputedStyle(behind ?? document.body).backgroundColor));
    return (Math.max(light, dark) + 0.05) / (Math.min(light, dark) + 0.05);
  });
