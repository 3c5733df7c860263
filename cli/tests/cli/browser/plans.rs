//! The page of `serve`: as people see it, and as they use it without a mouse.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::pages::{DARK, LIGHT, TELEPHONE, problems};
use super::{Browser, View};
use crate::project::Project;
use crate::serve::Server;

const CHECKS: [&str; 2] = ["clipped()", "faint()"];

impl Browser {
    /// Waits for the results of the form's choices, and returns the sentences above.
    fn outcome(&mut self) -> String {
        let begin = Instant::now();
        // A change is asked for after a moment.
        thread::sleep(Duration::from_millis(400));
        let expression = "$('results').hasAttribute('aria-busy') ? '' : $('outcome').innerText";
        loop {
            let text = self.evaluate(expression).as_str().unwrap_or_default().to_owned();
            if !text.is_empty() {
                return text;
            }
            if begin.elapsed() > Duration::from_mins(1) {
                self.photograph("serve-without-outcome");
                panic!("no outcome: {}", self.evaluate("document.body.outerHTML"));
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Opens the page with these choices.
    fn plan(&mut self, server: &Server, choices: &str, view: View) -> String {
        // Another fragment alone would not load the page.
        self.open_address("about:blank", view);
        self.open_address(&format!("{}#{choices}", server.address()), view);
        self.outcome()
    }

    fn text(&mut self, expression: &str) -> String {
        self.evaluate(expression).as_str().expect("a text").to_owned()
    }

    fn press(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            let (code, text) = if key == "Enter" { (13, "\r") } else { (9, "") };
            let event = json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text });
            self.call("Input.dispatchKeyEvent", &event);
        }
    }
}

/// The arguments of a command line of the page.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut is_quoted = false;
    for character in line.chars() {
        match character {
            '\'' => is_quoted = !is_quoted,
            ' ' if !is_quoted => words.push(String::new()),
            other => words.last_mut().expect("a word").push(other),
        }
    }
    words
}

const MODEL: &str = "model=transformer&layers=12&d_model=768&vocab=50257&seq=1024&heads=12";

#[test]
#[ignore = "needs a browser; `.ci/nightly` runs it"]
fn plans_are_readable_on_screens_and_telephones() {
    let Some(mut browser) = Browser::open() else { return };
    let project = Project::new("declared");
    let server = Server::start(&project, &[]);
    let cases = [
        ("plan", format!("gpu=rtx4090&{MODEL}&global_batch=512&precision=auto&ranks=4"), "good"),
        ("misfit", "gpu=rtx4070&model=transformer&layers=32&d_model=4096&vocab=32000&seq=2048".to_owned(), "bad"),
        ("workload", "gpu=h200&workload=digits".to_owned(), "good"),
        ("refused", "gpu=h200&model=vit&image=224&patch=15".to_owned(), "bad"),
    ];
    for (name, choices, class) in cases {
        for (view_name, view) in
            [("1280", LIGHT), ("dark", DARK), ("400", TELEPHONE), ("400-dark", View { width: 400, ..DARK })]
        {
            let outcome = browser.plan(&server, &choices, view);
            browser.photograph(&format!("serve-{name}-{view_name}"));
            let found = problems(&mut browser, &CHECKS);
            assert!(found.is_empty(), "{name}, {view:?}: {found:#?}");
            assert_eq!(browser.text("$('outcome').firstChild.className"), class, "{outcome}");
            let ground = browser.evaluate("groundLuminance()").as_f64().expect("a number");
            assert_eq!(ground < 0.5, view.scheme == "dark", "{name}, {view:?}: {ground}");
        }
    }
}

#[test]
#[ignore = "needs a browser; `.ci/nightly` runs it"]
fn the_page_shows_what_the_commands_print() {
    let Some(mut browser) = Browser::open() else { return };
    let project = Project::new("declared");
    let server = Server::start(&project, &[]);
    let cases = [
        format!("gpu=rtx4090&{MODEL}&global_batch=512&checkpointing=false&ranks=4"),
        "gpu=h200&workload=large&precision=mixed_bf16".to_owned(),
        "gpu=rtx4070&workload=large".to_owned(),
        "gpu=t4&workload=digits&precision=mixed_bf16".to_owned(),
        "gpu=h200&model=mlp&widths=784".to_owned(),
    ];
    for choices in cases {
        let outcome = browser.plan(&server, &choices, LIGHT);
        // The choices stay in the address.
        let fragment = browser.text("location.hash.slice(1)");
        let sorted = |text: &str| {
            let mut pairs: Vec<_> = text.split('&').map(str::to_owned).collect();
            pairs.sort();
            pairs
        };
        assert_eq!(sorted(&fragment), sorted(&choices));
        if outcome.starts_with("error: ") {
            let args: &[&str] = if choices.contains("mlp") {
                &["h200", "--model", "mlp(widths = 784)"]
            } else {
                &["t4", "--workload", "digits", "--precision", "mixed_bf16"]
            };
            let refused = project.run(&[&["explain"], args].concat());
            let plain = |text: &str| text.replace('`', "").split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(plain(&outcome), plain(&refused.stderr), "{choices}");
            assert_eq!(browser.evaluate("$('results').hidden"), json!(true));
            continue;
        }
        let line = browser.text("$('command').textContent");
        let args = words(line.strip_prefix("cargo gpu-tuned ").expect("a command"));
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        assert_eq!(args[0], "plan");
        let ran = project.run(&args);
        let plan: Value = project.run(&[&["plan", "--json"], &args[1..]].concat()).json(ran.code);
        if ran.code == 1 {
            let explained = project.run(&[&["explain"], &args[1..]].concat()).ended(1).replace('`', "");
            for line in outcome.lines().filter(|line| !line.is_empty()) {
                let words = explained.split_whitespace().collect::<Vec<_>>().join(" ");
                assert!(words.contains(line), "{line}: {words}");
            }
            continue;
        }
        // The speed as in the table of `plan`, and the memory as in its columns.
        let table = &ran.stdout;
        let part = |begin: &str, end: &str| {
            let behind = outcome.split_once(begin).expect("a part").1;
            behind.split_once(end).map_or(behind, |(part, _)| part).to_owned()
        };
        let speed = part(
            &format!("{}, ", plan["plans"][0]["plan"]["settings"]["precision"].as_str().expect("a name")),
            " samples/s",
        );
        assert!(table.contains(&speed), "{speed}: {table}");
        let [needed, available] =
            part(" samples/s, ", "\n").split(" of ").map(str::to_owned).collect::<Vec<_>>().try_into().unwrap();
        assert!(table.contains(&needed) && table.contains(&available), "{needed}, {available}: {table}");
        // The ranking has the same plan of the chosen GPU.
        let row = browser.text("document.querySelector('#ranking [aria-current]').innerText");
        assert!(row.contains(&speed) && row.contains(&needed), "{row}");
    }
}

#[test]
#[ignore = "needs a browser; `.ci/nightly` runs it"]
fn everything_can_be_chosen_with_the_keyboard() {
    let Some(mut browser) = Browser::open() else { return };
    let project = Project::new("declared");
    let server = Server::start(&project, &[]);
    let before = browser.plan(&server, &format!("gpu=rtx4090&{MODEL}&global_batch=512"), LIGHT);
    let focused =
        "document.activeElement.name || document.activeElement.id || document.activeElement.textContent.slice(0, 15)";
    let mut order = Vec::new();
    while order.len() < 40 {
        browser.press("Tab");
        let name = browser.text(focused);
        if browser.text("document.activeElement.tagName") == "BODY" {
            break;
        }
        let outline = browser.text("getComputedStyle(document.activeElement).outlineStyle");
        assert_eq!(outline, "solid", "{name} shows no focus");
        order.push(name);
        if order.len() == 4 {
            // In the field of the global batch: another step, and its plan.
            browser.call("Input.insertText", &json!({ "text": "64" }));
            let outcome = browser.outcome();
            assert!(browser.text("location.hash").contains("global_batch=64"));
            assert_ne!(outcome, before);
        }
    }
    let fields =
        ["gpu", "source", "precision", "global_batch", "checkpointing", "ranks", "layers", "d_model", "vocab", "seq"];
    assert_eq!(order[..fields.len()], fields);
    for other in ["More dimensions", "Training method", "all", "Copy command", "Copy file", "The arithmetic"] {
        assert!(order.iter().any(|name| name.starts_with(other)), "{other}: {order:?}");
    }
    // Every field has a name for screen readers, and the outcome is read out.
    let unnamed = "[...form.elements].filter(it => it.name && !it.labels.length).map(it => it.name).join()";
    assert_eq!(browser.text(unnamed), "");
    assert_eq!(browser.text("$('outcome').getAttribute('aria-live')"), "polite");
    // The rest of the ranking, and the arithmetic.
    let rows = "document.querySelectorAll('#ranking tbody tr').length";
    let few = browser.evaluate(rows).as_u64().expect("a count");
    for id in ["all", "arithmetic > summary"] {
        browser.evaluate(&format!("document.querySelector('#{id}').focus()"));
        browser.press("Enter");
    }
    browser.outcome();
    assert!(browser.evaluate(rows).as_u64().expect("a count") > 2 * few);
    let begin = Instant::now();
    while !browser.text("$('text').textContent").contains("micro-batches considered") {
        assert!(begin.elapsed() < Duration::from_secs(20), "no arithmetic");
        thread::sleep(Duration::from_millis(50));
    }
    // Another kind of model brings its dimensions.
    browser.evaluate("form.source.focus()");
    browser.evaluate(
        "form.source.value = 'preset resnet18'; form.source.dispatchEvent(new Event('input', { bubbles: true }))",
    );
    let outcome = browser.outcome();
    assert!(outcome.starts_with("convnet on rtx4090: batch "), "{outcome}");
    assert!(browser.text("$('file').textContent").contains("[workload.model.convnet]"));
}
