// A line over the last minutes, as SVG.
const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 300;
const HEIGHT = 60;

// `values`: the newest last, null if unknown; `room`: how many there may be; `top`: of the scale.
export function draw(svg, values, { room, top }) {
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  const highest = top ?? Math.max(1, ...values) * 1.1;
  const step = WIDTH / (room - 1);
  const points = values
    .map((value, index) => [WIDTH - (values.length - 1 - index) * step, HEIGHT - 1 - (value / highest) * (HEIGHT - 2)])
    .filter((_, index) => values[index] !== null)
    .map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`);
  if (points.length < 2) {
    svg.replaceChildren();
    return;
  }
  const start = points[0].split(",")[0];
  svg.replaceChildren(
    shape("polygon", [`${start},${HEIGHT}`, ...points, `${WIDTH},${HEIGHT}`], "area"),
    shape("polyline", points, "line"),
  );
}

function shape(name, points, kind) {
  const element = document.createElementNS(SVG, name);
  element.setAttribute("points", points.join(" "));
  element.setAttribute("class", kind);
  return element;
}
