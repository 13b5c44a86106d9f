"use strict";
(() => {
  const root = document.documentElement;
  const button = document.querySelector(".theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const now = () => root.dataset.theme || (dark.matches ? "dark" : "light");
  const name = () => {
    button.textContent = now() === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Show it ${now() === "dark" ? "light" : "dark"}`);
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = now() === "dark" ? "light" : "dark";
    name();
  });
  dark.addEventListener("change", name);
  name();

  const key = (row, place) => {
    const cell = row.cells[place];
    return cell.dataset.v === undefined ? cell.textContent.trim() : cell.dataset.v;
  };
  const order = (a, b) => {
    if (a === "" || b === "") return (a === "") - (b === "");
    const [x, y] = [Number(a), Number(b)];
    if (!Number.isNaN(x) && !Number.isNaN(y)) return x - y;
    return a.localeCompare(b, "en", { numeric: true });
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, place) => {
      head.querySelector("button").addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        for (const one of heads) one.setAttribute("aria-sort", "none");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const body = table.tBodies[0];
        const rows = [...body.rows].map((row) => [key(row, place), row]);
        rows.sort(([a], [b]) => {
          const found = order(a, b);
          return a === "" || b === "" || up ? found : -found;
        });
        body.append(...rows.map(([, row]) => row));
      });
    });
  }
})();
