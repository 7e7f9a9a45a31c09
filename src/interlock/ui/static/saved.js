// Views that the reader has saved: a name and the address of a listing. They are kept in this browser and hold no data.

const STORED = "interlock-views";
const VIEWS_MAX = 50;

export function views() {
  try {
    const found = JSON.parse(localStorage.getItem(STORED) ?? "[]");
    return found.filter((each) => typeof each?.name === "string" && /^#\//.test(each.hash));
  } catch {
    return []; // Storage may be forbidden, or was written by another program.
  }
}

export function keepView(name, hash) {
  store([...views().filter((each) => each.name !== name), { name, hash }].slice(-VIEWS_MAX));
}

export function removeView(name) {
  store(views().filter((each) => each.name !== name));
}

function store(kept) {
  try {
    localStorage.setItem(STORED, JSON.stringify(kept));
  } catch {
    throw Object.assign(new Error(), {
      title: "The view cannot be saved.",
      detail: "This browser refuses storage to the page.",
      fix: "Keep the address as a bookmark instead.",
    });
  }
}
