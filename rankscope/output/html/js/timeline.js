// The picked ranks in one iteration, as lanes of bars on one clock.

const timelineChart = byId("timeline-chart");

/** A line at the last arrival, which kept the picked ranks waiting longest. */
const lateLine = ({ at }) => ({
  type: "line", xref: "x", x0: at / 1e6, x1: at / 1e6, yref: "paper", y0: 0, y1: 1,
  line: { color: color("late"), width: 1.5, dash: "dash" },
});
const longestEnd = () => page.timeline.bars[2].reduce((a, b) => Math.max(a, b), 0);
const lateWords = ({ at, rank }) => ({
  x: at / 1e6, xref: "x", xanchor: at > longestEnd() / 2 ? "right" : "left", y: 1, yref: "paper", yanchor: "bottom", showarrow: false,
  text: `rank ${rank} arrives last`, font: { color: color("late"), size: 12 },
});

function drawTimeline() {
  const { caption, lanes, bars, late } = page.timeline;
  slot("timeline").textContent = caption;
  timelineChart.hidden = !lanes.length;
  if (!lanes.length) return;
  const [lane, start, end, part, text] = bars;
  const gaps = lanes.map((each, k) => (k && each.rank !== lanes[k - 1].rank ? 1 : 0));
  let sum = 0;
  const place = lanes.map((_, k) => k + 0.6 * (sum += gaps[k]));
  const order = Object.keys(page.parts).filter((name) => part.includes(name));
  showLegend("timeline", order, named);
  const traces = order.map((name) => {
    const mine = part.map((_, k) => k).filter((k) => part[k] === name);
    return {
      type: "bar", orientation: "h", name: named(name), marker: paint(name), hoverinfo: "none", width: 0.78,
      y: mine.map((k) => place[lane[k]]), base: mine.map((k) => start[k] / 1e6),
      x: mine.map((k) => (end[k] - start[k]) / 1e6), customdata: mine,
    };
  });
  const whole = () => [start.reduce((a, b) => Math.min(a, b)) / 1e6, end.reduce((a, b) => Math.max(a, b)) / 1e6];
  const small = narrow(timelineChart);
  const texts = lanes.map((each, k) => {
    const first = k === 0 || gaps[k];
    const who = `${each.pick} rank ${each.rank}`.trim();
    return first ? `<b>${literal(who)}</b>${small ? "" : `  ${literal(each.name)}`}` : literal(small ? short(each.name, 11) : each.name);
  });
  const lines = lanes.flatMap((_, k) => (gaps[k] ? [{ type: "line", xref: "paper", x0: 0, x1: 1, yref: "y", y0: place[k] - 0.8, y1: place[k] - 0.8, line: { color: color("faint"), width: 1 } }] : []));
  const more = {
    xaxis: axis(small ? "time since the first start (ms)" : "time since the start of the first window (ms)", { fixedrange: false, range: whole() }), barmode: "overlay",
    yaxis: axis("", { range: [place.at(-1) + 0.6, -0.6], tickvals: place, ticktext: texts, ticks: "", showgrid: false, zeroline: false }),
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom", shapes: [...lines, ...late.map(lateLine)], annotations: late.map(lateWords),
    margin: { l: 48, r: 12, t: late.length ? 26 : 8, b: 44 },
  };
  Plotly.react(timelineChart, traces, layout(timelineChart, 90 + 26 * (place.at(-1) + 1), more), CONFIG);
  tell(timelineChart, ({ customdata: k }) => [
    `Rank ${lanes[lane[k]].rank}, ${lanes[lane[k]].name}`,
    `${named(part[k])} ${ms((end[k] - start[k]) / 1e6)} ms, from ${ms(start[k] / 1e6)} to ${ms(end[k] / 1e6)}`,
    text[k],
  ]);
  timelineChart.ondblclick = () => Plotly.relayout(timelineChart, { "xaxis.range": whole() });
  timelineChart.onkeydown = (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const [low, high] = timelineChart.layout.xaxis.range.map(Number);
    const quarter = (high - low) / 4;
    const range = {
      ArrowLeft: [low - quarter, high - quarter], ArrowRight: [low + quarter, high + quarter],
      "+": [low + quarter, high - quarter], "=": [low + quarter, high - quarter], "-": [low - 2 * quarter, high + 2 * quarter],
      0: whole(), Escape: whole(),
    }[event.key];
    if (!range) return;
    Plotly.relayout(timelineChart, { "xaxis.range": range });
    event.preventDefault();
  };
}
