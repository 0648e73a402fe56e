"use strict";
(() => {
  const root = document.documentElement;
  const remember = (theme) => { try { localStorage.setItem("lossmith-theme", theme); } catch { /* a file may have no storage */ } };
  try { const theme = localStorage.getItem("lossmith-theme"); if (theme) root.dataset.theme = theme; } catch { /* as above */ }
  document.getElementById("theme").addEventListener("click", () => {
    const prefersDark = matchMedia("(prefers-color-scheme: dark)").matches;
    const isDark = (root.dataset.theme ?? (prefersDark ? "dark" : "light")) === "dark";
    root.dataset.theme = isDark ? "light" : "dark";
    remember(root.dataset.theme);
  });

  const compare = (a, b) => {
    const [x, y] = [Number(a), Number(b)];
    if (a === "" || b === "") return (a === "") - (b === "");
    return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => {
      const descends = head.getAttribute("aria-sort") !== "descending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", descends ? "descending" : "ascending");
      const value = (row) => row.cells[column].dataset.value;
      const rows = [...table.tBodies[0].rows].sort((a, b) => {
        const order = compare(value(a), value(b));
        // rows without a value stay at the end
        return value(a) === "" || value(b) === "" ? order : descends ? -order : order;
      });
      table.tBodies[0].append(...rows);
    }));
  }

  for (const button of document.querySelectorAll(".copy")) {
    button.addEventListener("click", async () => {
      const code = button.nextElementSibling;
      try {
        await navigator.clipboard.writeText(code.innerText);
        button.textContent = "copied";
      } catch {
        getSelection().selectAllChildren(code); // without the right to copy: marked, for the keyboard
        button.textContent = "selected";
      }
      setTimeout(() => { button.textContent = "copy"; }, 1500);
    });
  }
})();
