//! Pages and pictures in a headless browser, which speaks the `Chrome DevTools Protocol` over pipes.

mod pages;
mod plans;

use std::env;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;

const NAMES: [&str; 5] =
    ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Functions that find what cannot be read.
const CHECKS: &str = include_str!("checks.js");

/// A browser with one tab.
struct Browser {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: Option<String>,
    sent: u64,
    _profile: TempDir,
}

/// Medium, color scheme and size of a tab.
#[derive(Clone, Copy, Debug)]
struct View {
    medium: &'static str,
    scheme: &'static str,
    width: u32,
}

impl Browser {
    /// Opens a browser. Without one on the `PATH`, prints that the test is skipped.
    fn open() -> Option<Self> {
        let folders = env::var_os("PATH").unwrap_or_default();
        let folders: Vec<_> = env::split_paths(&folders).collect();
        let find = |name| folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
        let Some(program) = NAMES.into_iter().find_map(find) else {
            // `eprintln` would be captured.
            let message = format!("SKIPPED: tests in a browser need one of {}\n", NAMES.join(", "));
            io::stderr().write_all(message.as_bytes()).expect("standard error can be written to");
            return None;
        };
        // The browser reads commands from descriptor 3, and answers on 4.
        let script = "exec \"$0\" --headless --no-sandbox --disable-gpu --hide-scrollbars --remote-debugging-pipe \
                      --user-data-dir=\"$1\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";
        let profile = tempfile::tempdir().expect("a folder");
        let mut child = Command::new("sh")
            .args(["-c", script])
            .arg(program)
            .arg(profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let (to, from) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let mut browser = Self { child, to, from: BufReader::new(from), session: None, sent: 0, _profile: profile };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attached =
            browser.call("Target.attachToTarget", &json!({ "targetId": target["targetId"], "flatten": true }));
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        browser.call("Page.enable", &json!({}));
        browser.call("Emulation.setFocusEmulationEnabled", &json!({ "enabled": true }));
        Some(browser)
    }

    /// Calls a method, and returns its result.
    fn call(&mut self, method: &str, params: &Value) -> Value {
        self.sent += 1;
        let mut message = json!({ "id": self.sent, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(format!("{message}\0").as_bytes()).expect("the browser reads");
        let sent = self.sent;
        let mut answer = self.wait(|message| message["id"] == sent);
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].take()
    }

    /// Reads messages up to one that `is_wanted`.
    fn wait(&mut self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let mut message = Vec::new();
            self.from.read_until(0, &mut message).expect("the browser answers");
            assert_eq!(message.pop(), Some(0), "the browser ended");
            let message: Value = serde_json::from_slice(&message).expect("JSON");
            if is_wanted(&message) {
                return message;
            }
        }
    }

    /// Shows a file.
    fn show(&mut self, file: &Path, view: View) {
        self.open_address(&format!("file://{}", file.display()), view);
    }

    fn open_address(&mut self, url: &str, view: View) {
        let View { medium, scheme, width } = view;
        let metrics = json!({ "width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", &metrics);
        let scheme = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", &json!({ "media": medium, "features": scheme }));
        let opened = self.call("Page.navigate", &json!({ "url": url }));
        assert!(opened["errorText"].is_null(), "{opened}");
        self.wait(|message| message["method"] == "Page.loadEventFired");
    }

    /// Evaluates an expression after the functions of [`CHECKS`].
    fn evaluate(&mut self, expression: &str) -> Value {
        // A block, as declarations cannot be repeated.
        let expression = format!("{{ {CHECKS}\n{expression} }}");
        let mut answer = self.call("Runtime.evaluate", &json!({ "expression": expression, "returnByValue": true }));
        assert!(answer["exceptionDetails"].is_null(), "{answer}");
        answer["result"]["value"].take()
    }

    /// Saves a picture of the whole page in the folder of the tests' files, for people to look at.
    fn photograph(&mut self, name: &str) {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("screenshots");
        let taken = self.call("Page.captureScreenshot", &json!({ "captureBeyondViewport": true }));
        let picture = STANDARD.decode(taken["data"].as_str().expect("base 64")).expect("base 64");
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join(name).with_extension("png"), picture).expect("a file");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // A browser that has ended already is no failure of the test.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
