// Rates, levels and lag over the last minutes, one line for each hop that is ticked.

import { make, percent, placed, rate, seconds, setText } from "./text.js";

const POINTS = 300;
const MOST = 8; // lines in a chart: more cannot be told apart
const LISTED = 24;
const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3]];

const FIGURES = [
  { name: "rate", title: "Records a second", show: rate, top: (most) => Math.max(1, most * 1.1) },
  { name: "level", title: "How full", show: percent, top: () => 1.02 },
  { name: "lag", title: "Lag in seconds", show: seconds, top: (most) => Math.max(1, most * 1.1) },
];

// Columns of figures, a point for each update; the clock is the server's own, which never jumps.
export class Series {
  constructor() {
    this.clock = [];
    this.hops = new Map();
  }

  replace({ clock, hops }) {
    this.clock = clock;
    this.hops = new Map(Object.entries(hops));
  }

  add(clock, figures) {
    if (this.clock.length && clock <= this.clock.at(-1)) return;
    const past = this.clock.length;
    this.clock.push(clock);
    for (const id of figures.keys()) {
      if (!this.hops.has(id)) {
        const empty = () => new Array(past).fill(null);
        this.hops.set(id, { rate: empty(), level: empty(), lag: empty() });
      }
    }
    for (const [id, columns] of this.hops) {
      const now = figures.get(id) ?? {};
      for (const { name } of FIGURES) columns[name].push(now[name] ?? null);
    }
    if (this.clock.length > POINTS) {
      this.clock.shift();
      for (const [id, columns] of this.hops) {
        for (const { name } of FIGURES) columns[name].shift();
        if (columns.rate.every((value) => value === null) && !figures.has(id)) this.hops.delete(id);
      }
    }
  }
}

export class Charts {
  constructor() {
    this.box = document.getElementById("charts");
    this.fieldset = document.getElementById("shown");
    this.table = document.querySelector("#charts-table tbody");
    this.details = document.getElementById("charts-table");
    this.ticked = null; // the ids, once the reader has chosen
    this.boxes = new Map();
    this.colours = new Map();
    this.hops = [];
    this.series = new Series();
    this.charts = [];
    this.signature = "";
    this.described = -Infinity;
    this.figures = FIGURES.map((figure) => {
      const title = make("figcaption", {}, make("span", { class: "chart-title" }, figure.title), make("span", { class: "readout" }));
      const place = make("div", { class: "chart", role: "img", "aria-label": figure.title });
      this.box.append(make("figure", {}, title, place));
      return { ...figure, place, readout: title.lastElementChild };
    });
    new ResizeObserver(() => this.resize()).observe(this.box);
    this.details.addEventListener("toggle", () => this.tabulate());
  }

  retheme() {
    this.signature = "";
    this.draw(this.hops, this.series);
  }

  shown() {
    if (this.ticked !== null) return this.hops.filter((hop) => this.ticked.has(hop.id)).slice(0, MOST);
    return this.hops.slice(0, MOST);
  }

  draw(hops, series) {
    this.hops = hops.slice(0, LISTED);
    this.series = series;
    const shown = this.shown();
    for (const hop of this.hops) if (!this.colours.has(hop.id)) this.colours.set(hop.id, this.colours.size);
    this.list(shown);
    const signature = shown.map((hop) => `${hop.id}\n${hop.name}`).join("\n\n");
    if (signature !== this.signature) {
      this.signature = signature;
      this.build(shown);
    }
    const last = series.clock.at(-1) ?? 0;
    const x = series.clock.map((clock) => clock - last);
    this.charts.forEach((chart, at) => {
      const { name } = this.figures[at];
      chart.setData([x, ...shown.map((hop) => series.hops.get(hop.id)?.[name] ?? x.map(() => null))]);
    });
    this.describe(shown);
    this.tabulate();
  }

  list(shown) {
    const ticked = new Set(shown.map((hop) => hop.id));
    const seen = new Set();
    for (const hop of this.hops) {
      seen.add(hop.id);
      let box = this.boxes.get(hop.id);
      if (box === undefined) {
        const input = make("input", { type: "checkbox" });
        const swatch = make("span", { class: "swatch", "aria-hidden": "true" });
        const name = make("span", {});
        box = { label: make("label", {}, input, swatch, name), input, swatch, name };
        input.addEventListener("change", () => this.tick(hop.id, input.checked));
        this.boxes.set(hop.id, box);
        this.fieldset.append(box.label);
      }
      const number = this.colours.get(hop.id);
      box.swatch.dataset.colour = String(number % MOST);
      box.swatch.dataset.dash = String(Math.floor(number / MOST) % DASHES.length);
      setText(box.name, `${hop.kind} ${placed(hop)}`);
      box.input.checked = ticked.has(hop.id);
      box.input.disabled = !ticked.has(hop.id) && ticked.size >= MOST;
    }
    for (const [id, box] of this.boxes) {
      if (!seen.has(id)) {
        box.label.remove();
        this.boxes.delete(id);
      }
    }
  }

  tick(id, isTicked) {
    if (this.ticked === null) this.ticked = new Set(this.shown().map((hop) => hop.id));
    if (isTicked) this.ticked.add(id);
    else this.ticked.delete(id);
    this.draw(this.hops, this.series);
  }

  build(shown) {
    for (const chart of this.charts) chart.destroy();
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--grid"), width: 1 }, ticks: { show: false }, font: `12px ${colour("--font")}` };
    this.charts = this.figures.map((figure) => {
      const options = {
        width: Math.max(200, figure.place.clientWidth),
        height: 190,
        legend: { show: false },
        cursor: { sync: { key: "penstock" }, drag: { x: false, y: false } },
        scales: { x: { time: false, range: [-POINTS, 0] }, y: { range: (_, __, most) => [0, figure.top(most ?? 0)] } },
        axes: [
          { ...axis, values: (_, marks) => marks.map((mark) => (mark === 0 ? "now" : `${Math.round(-mark / 60)} min`)), incrs: [60, 120, 300] },
          { ...axis, size: 62, values: (_, marks) => marks.map((mark) => figure.show(mark)) },
        ],
        series: [
          {},
          ...shown.map((hop) => {
            const number = this.colours.get(hop.id);
            return {
              label: placed(hop),
              stroke: colour(`--line-${number % MOST}`),
              dash: DASHES[Math.floor(number / MOST) % DASHES.length],
              width: 2,
              points: { show: false },
              spanGaps: false,
            };
          }),
        ],
        hooks: { setCursor: [(chart) => this.read(figure, chart, shown)] },
      };
      return new window.uPlot(options, [[], ...shown.map(() => [])], figure.place);
    });
  }

  read(figure, chart, shown) {
    const at = chart.cursor.idx;
    if (at === null || at === undefined || chart.cursor.left < 0) {
      setText(figure.readout, "");
      return;
    }
    const ago = -(chart.data[0][at] ?? 0);
    const values = shown
      .map((hop, number) => [placed(hop), chart.data[number + 1]?.[at]])
      .filter(([, value]) => value !== null && value !== undefined)
      .map(([name, value]) => `${name.slice(0, 18)} ${figure.show(value)}`);
    setText(figure.readout, `${seconds(ago)} ago: ${values.join(", ") || "nothing known"}`);
  }

  resize() {
    this.charts.forEach((chart, at) => {
      const width = this.figures[at].place.clientWidth;
      if (width > 0 && width !== chart.width) chart.setSize({ width, height: 190 });
    });
  }

  // What a chart shows in words, for those who do not see it; not every second.
  describe(shown) {
    if (performance.now() - this.described < 5000) return;
    this.described = performance.now();
    for (const figure of this.figures) {
      const said = shown.map((hop) => {
        const { now, least, most } = extent(this.series.hops.get(hop.id)?.[figure.name]);
        return now === null ? null : `${placed(hop)} ${figure.show(now)}, between ${figure.show(least)} and ${figure.show(most)}`;
      });
      figure.place.setAttribute("aria-label", `${figure.title}: ${said.filter(Boolean).join("; ") || "nothing known yet"}`);
    }
  }

  tabulate() {
    if (!this.details.open) return;
    const rows = [];
    for (const hop of this.shown()) {
      for (const figure of this.figures) {
        const { now, least, most } = extent(this.series.hops.get(hop.id)?.[figure.name]);
        if (least === null) continue;
        const cells = [figure.title, figure.show(now), figure.show(least), figure.show(most)].map((text) => make("td", {}, text));
        rows.push(make("tr", {}, make("th", { scope: "row" }, `${hop.kind} ${placed(hop)}`), ...cells));
      }
    }
    this.table.replaceChildren(...rows);
  }
}

function extent(column) {
  const known = (column ?? []).filter((value) => value !== null);
  if (!known.length) return { now: null, least: null, most: null };
  return { now: column.at(-1), least: Math.min(...known), most: Math.max(...known) };
}
