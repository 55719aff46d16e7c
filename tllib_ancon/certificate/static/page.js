// Shows the state that the server sends, and sends back what the user does. Text goes into the page as text only.

const part = (id) => document.getElementById(id);
const buttons = [...part("options").querySelectorAll("button")];

let state = null;
let busy = false;

async function request(path, body) {
  const response = await fetch(path, body && {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  const answer = await response.json();
  return { answer, failed: response.ok ? null : answer.error };
}

async function send(path, body, done) {
  if (busy) return;
  setBusy(true);
  try {
    const { answer, failed } = await request(path, body);
    if ("answered" in answer) show(answer);
    say(failed ?? done, Boolean(failed));
  } catch {
    say("The server does not answer. What was saved is kept: start the command again and open its new address.", true);
  } finally {
    setBusy(false);
  }
}

function setBusy(value) {
  busy = value;
  document.body.setAttribute("aria-busy", String(value));
}

function say(text, alarm) {
  part("status").textContent = text ?? "";
  part("status").classList.toggle("alarm", Boolean(alarm));
}

function show(next) {
  const moved = state?.answered !== next.answered;
  state = next;
  const asking = state.options.length > 0;
  part("asking").hidden = !asking;
  part("result").hidden = asking;
  part("progress").textContent =
    `${count(state.answered, "label")} so far, ${state.total.toLocaleString("en")} at most`;
  part("undo").disabled = !asking || state.answered === 0;
  part("last").textContent = state.last === null ? "" : `“${state.last}”`;
  part("finish").textContent = asking ? "Stop for now" : "Finish";
  if (asking) showQuestion(moved);
  else showResult();
}

function showQuestion(moved) {
  part("title").textContent = "Which class is this?";
  while (buttons.length > state.options.length) buttons.pop().remove();
  while (buttons.length < state.options.length) addButton();
  state.options.forEach(({ text }, index) => (buttons[index].querySelector("span").textContent = text));
  if (!moved) return;
  part("unreadable").hidden = true;
  part("image").hidden = false;
  part("image").classList.remove("tiny");
  part("image").src = `image/${state.image}`;
  if (state.image + 1 < state.total) new Image().src = `image/${state.image + 1}`;
}

function addButton() {
  const button = buttons[0].cloneNode(true);
  const index = buttons.push(button) - 1;
  button.setAttribute("aria-keyshortcuts", index + 1);
  button.querySelector("kbd").textContent = index + 1;
  button.addEventListener("click", () => answer(index));
  part("options").append(button);
}

function showResult() {
  const titles = {
    better: "The adapted model is better",
    worse: "The adapted model is worse",
    undecided: "Neither is better by more than the margin",
  };
  part("title").textContent = "Decided";
  const title = document.createElement("h2");
  title.textContent = titles[state.verdict];
  const lines = state.words.map((words) => {
    const line = document.createElement("p");
    line.textContent = words;
    return line;
  });
  part("result").replaceChildren(title, ...lines);
  part("result").focus();
}

function count(number, thing) {
  return `${number.toLocaleString("en")} ${thing}${number === 1 ? "" : "s"}`;
}

function answer(index) {
  const option = state?.options[index];
  if (option) send("answer", { answered: state.answered, answer: option.answer }, `Saved “${option.text}”.`);
}

function undo() {
  if (state?.answered && state.options.length) send("undo", { answered: state.answered }, "Taken back.");
}

async function finish() {
  await request("finish", {});
  document.querySelectorAll("button").forEach((button) => (button.disabled = true));
  state = null;
  say("The session has ended; every answer is saved. You can close this page.");
}

buttons.forEach((button, index) => button.addEventListener("click", () => answer(index)));
part("undo").addEventListener("click", undo);
part("finish").addEventListener("click", finish);
part("image").addEventListener("error", () => {
  part("image").hidden = true;
  part("unreadable").hidden = false;
});
part("image").addEventListener("load", ({ target }) => target.classList.toggle("tiny", target.naturalWidth < 100));
document.addEventListener("keydown", (event) => {
  if (event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
  if ("123456789".includes(event.key)) answer(Number(event.key) - 1);
  else if (event.key.toLowerCase() === "u") undo();
});

send("state");
