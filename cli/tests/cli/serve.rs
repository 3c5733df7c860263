//! `serve`: its answers are those of the commands, and no request of another site, or of a broken client, has an effect.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::project::Project;

/// A running server.
pub(crate) struct Server {
    child: Child,
    port: u16,
}

impl Server {
    pub(crate) fn start(project: &Project, args: &[&str]) -> Self {
        let mut command = project.command(&[&["serve", "--json"], args].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the command starts");
        // One document, whose last line is a brace.
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map(|line| line.expect("UTF-8"));
        let mut text = String::new();
        for line in lines {
            text += &line;
            if line == "}" {
                break;
            }
        }
        let document: Value = serde_json::from_str(&text).expect("a document");
        assert_eq!((&document["command"], &document["schema_version"]), (&"serve".into(), &1.into()));
        let address = document["address"].as_str().expect("an address");
        let port = address.strip_prefix("http://127.0.0.1:").and_then(|rest| rest.strip_suffix('/'));
        Self { child, port: port.and_then(|port| port.parse().ok()).expect("a port") }
    }

    pub(crate) fn address(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the server listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
        stream
    }

    /// Sends bytes, and returns the number and the body of the answer.
    fn send(&self, bytes: &[u8]) -> (u16, String) {
        let mut stream = self.connect();
        stream.write_all(bytes).expect("the server reads");
        received(&mut stream)
    }

    fn get(&self, path: &str, args: &[&str]) -> (u16, String) {
        let query: Vec<_> = args.iter().map(|arg| format!("arg={}", encoded(arg))).collect();
        let host = format!("127.0.0.1:{}", self.port);
        self.send(format!("GET /{path}?{} HTTP/1.1\r\nHost: {host}\r\n\r\n", query.join("&")).as_bytes())
    }

    #[cfg(target_os = "linux")]
    fn entries(&self, folder: &str) -> usize {
        fs::read_dir(format!("/proc/{}/{folder}", self.child.id())).expect("a process").count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A server that has ended already is no failure of the test.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn received(stream: &mut TcpStream) -> (u16, String) {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {answer}"));
    let length = format!("Content-Length: {}\r\n", body.len());
    assert!(head.contains(&length) && head.contains("frame-ancestors 'none'"), "{head}");
    (head.split(' ').nth(1).and_then(|number| number.parse().ok()).expect("a number"), body.to_owned())
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

const MODEL: &str = "transformer(layers = 12, d_model = 768, vocab = 50257, seq = 1024)";

#[test]
fn answers_are_the_documents_of_the_commands() {
    let project = Project::new("declared");
    let server = Server::start(&project, &[]);
    let cases: [&[&str]; 7] = [
        &["h200", "--workload", "digits"],
        &["rtx4090", "--workload", "large", "--world-size", "4", "--link", "pcie"],
        &["RTX 4090", "--model", MODEL, "--global-batch", "512", "--precision", "auto"],
        &["h200", "--model", MODEL, "--set", "gradient_checkpointing=true"],
        &["h200", "--model", "vit(image = 224, patch = 16)"],
        &["t4", "--model", MODEL, "--precision", "mixed_bf16"],
        &["rtx4099", "--model", MODEL],
    ];
    for args in cases {
        for command in ["plan", "explain"] {
            let ran = project.run(&[&[command, "--json"], args].concat());
            let (number, document) = server.get(&format!("{command}.json"), args);
            if ran.stdout.contains("\"error\"") || ran.stdout.is_empty() {
                let refusal: Value = serde_json::from_str(&document).expect("JSON");
                let help = refusal["help"].as_str().map(|help| format!("\n  help: {help}")).unwrap_or_default();
                let printed = format!("error: {}{help}\n", refusal["error"].as_str().expect("a text"));
                assert_eq!((number, printed), (422, ran.stderr), "{args:?}");
            } else {
                assert_eq!((number, document), (200, ran.stdout), "{command} {args:?}");
            }
        }
    }
    let ranking = ["--all", "--sort", "memory", "--workload", "digits"];
    let ran = project.run(&[&["plan", "--json"], &ranking[..]].concat());
    assert_eq!(server.get("plan.json", &ranking), (200, ran.stdout));
    let text = project.run(&["explain", "h200", "--workload", "digits"]).ended(0);
    assert_eq!(server.get("explain.txt", cases[0]), (200, text));
}

#[test]
fn the_file_of_the_page_gives_the_same_plan() {
    let project = Project::new("declared");
    let server = Server::start(&project, &[]);
    let choices: Value = serde_json::from_str(&server.get("choices.json", &[]).1).expect("JSON");
    assert_eq!(choices["workloads"], serde_json::json!(["digits", "large"]));
    // One in eight, each with three processes; unit tests read all of them.
    let of_presets = choices["presets"].as_array().expect("presets").iter().step_by(8).map(|preset| {
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let values = preset["values"].as_array().expect("values").iter();
        let mut values: Vec<_> = values.map(|pair| format!("{} = {}", text(&pair[0]), text(&pair[1]))).collect();
        let model = text(&preset["model"]);
        // Sequences without a length of their own.
        if ["transformer", "encoder_decoder"].contains(&&*model)
            && !values.iter().any(|value| value.starts_with("seq = "))
        {
            values.push("seq = 512".to_owned());
        }
        format!("{model}({})", values.join(", "))
    });
    let declared = "declared(parameters = 1e6, activation_bytes_per_sample = 4096, flops_per_sample = 1e9, dominant_product = \
                    { rows_per_sample = 8, inner = 64, columns = 64 }, optimizer = sgd, host_ms_per_sample = 0.5)";
    let adapted = "transformer(layers = 4, d_model = 256, vocab = 1000, seq = 64, lora_rank = 8, lora_targets = [\"query\"], frozen_weights = q4)";
    let models: Vec<_> = of_presets.chain([declared, adapted].map(str::to_owned)).collect();
    assert!(models.len() > 10, "{models:?}");
    let goal = ["--global-batch", "128", "--world-size", "2", "--precision", "auto", "--headroom", "0.2"];
    let set = ["--set", "gradient_checkpointing=false"];
    for model in &models {
        let args = [&["h200", "--model", model], &goal[..], &set].concat();
        let (number, file) = server.get("gpu-tuned.toml", &args);
        assert_eq!(number, 200, "{model}: {file}");
        assert!(file.starts_with("# GPU_TUNED_SET=gradient_checkpointing=false\n"), "{file}");
        let other = Project::new("declared");
        other.write("gpu-tuned.toml", &file);
        let from_file = other.run(&["plan", "--json", "h200", "--workload", "model", set[0], set[1]]);
        let mut asked = project.run(&[&["plan", "--json"], &args[..]].concat());
        let kind = model.split('(').next().expect("a kind");
        asked.stdout = asked.stdout.replace(&format!("\"workload\": \"{kind}\""), "\"workload\": \"model\"");
        assert_eq!(from_file.stdout, asked.stdout, "{model}");
    }
    let file = server.get("gpu-tuned.toml", &["--workload", "large", "--global-batch", "64"]).1;
    let other = Project::new("declared");
    other.write("gpu-tuned.toml", &file);
    let asked = project.run(&["plan", "--json", "h200", "--workload", "large", "--global-batch", "64"]).ended(0);
    assert_eq!(other.run(&["plan", "--json", "h200", "--workload", "large"]).ended(0), asked);
}

#[test]
fn the_page_offers_no_file_that_commands_refuse() {
    let server = Server::start(&Project::new("bare"), &[]);
    for (goal, mistake) in [
        (["--global-batch", "0"], "global_batch"),
        (["--world-size", "0"], "world_size"),
        (["--headroom", "0.95"], "memory_headroom"),
    ] {
        let (number, document) = server.get("gpu-tuned.toml", &["--model", MODEL, goal[0], goal[1]]);
        assert_eq!(number, 422, "{document}");
        assert!(document.contains(mistake), "{document}");
    }
}

/// The goal of a struct is in its attribute, which a file does not override.
#[test]
fn structs_are_planned_and_their_file_is_the_attribute() {
    let project = Project::new("measured");
    let attribute =
        "#[gpu_tuned::gpu_tuned(mlp(widths = [784, 10]), global_batch = 64, target = \"h200\")]\n#[derive(Clone)]\n";
    let structure = "pub struct Small { #[tuned] pub batch_size: usize }\nfn main() {}\n";
    project.write("src/main.rs", &format!("{attribute}{structure}"));
    let server = Server::start(&project, &[]);
    assert!(server.get("choices.json", &[]).1.contains("\"Small\""));
    let printed = project.run(&["plan", "--json", "h200", "--workload", "Small"]).ended(0);
    assert_eq!(server.get("plan.json", &["h200", "--workload", "Small"]), (200, printed));
    let (number, file) = server.get("gpu-tuned.toml", &["--workload", "Small"]);
    assert_eq!((number, &*file), (200, "# The attribute of `Small` describes the model and the goal.\n"));
}

#[test]
fn a_request_cannot_choose_the_package_or_a_command() {
    let project = Project::new("declared");
    let server = Server::start(&project, &[]);
    let elsewhere = Project::new("measured").path("Cargo.toml");
    for option in ["--manifest-path", "--package", "--color", "--verbose", "--output", "--help"] {
        let (number, document) = server.get("plan.json", &["h200", option, elsewhere.to_str().expect("UTF-8")]);
        assert_eq!(number, 422, "{document}");
        assert!(document.contains("unexpected argument"), "{option}: {document}");
    }
    for path in ["report.json", "init.json", "plan", "../Cargo.toml", "Cargo.toml", "%2e%2e/Cargo.toml", "/"] {
        assert_eq!(server.get(path, &["h200"]).0, 404, "{path}");
    }
}

/// The server of a package with a mistake does not start; a later mistake is on the page.
#[test]
fn mistakes_in_files_are_reported_at_the_start_and_later() {
    let project = Project::new("declared");
    let server = Server::start(&project, &[]);
    project.write("gpu-tuned.toml", "[workload.digits]\nparameterz = 1\n");
    let (number, document) = server.get("plan.json", &["h200"]);
    assert_eq!((number, document.contains("parameterz")), (422, true), "{document}");
    assert_eq!(server.get("choices.json", &[]).0, 422);
    assert!(project.run(&["serve"]).refused(2).contains("parameterz"));
}

#[test]
fn a_port_that_is_taken_is_named() {
    let project = Project::new("bare");
    let server = Server::start(&project, &[]);
    let port = server.port.to_string();
    let refused = project.run(&["serve", "--port", &port]).refused(2);
    assert!(refused.starts_with(&format!("error: cannot listen at port {port} of 127.0.0.1: ")), "{refused}");
    assert!(refused.contains("--port"), "{refused}");
}

#[test]
fn broken_and_foreign_requests_are_refused_and_leave_nothing() {
    let project = Project::new("bare");
    let server = Server::start(&project, &[]);
    let own = format!("127.0.0.1:{}", server.port);
    let get = |path: &str, headers: &str| format!("GET {path} HTTP/1.1\r\nHost: {own}\r\n{headers}\r\n").into_bytes();
    assert_eq!(server.send(&get("/", "")).0, 200);
    #[cfg(target_os = "linux")]
    let before = [server.entries("fd"), server.entries("task")];
    let long = "x".repeat(20_000);
    let with_host = |host: &str| format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes();
    let cases = [
        (get(&format!("/?arg={long}"), ""), 431),
        (get("/", &format!("Cookie: {long}\r\n")), 431),
        // No end of the head.
        (vec![b'x'; 200_000], 431),
        (with_host("evil.example"), 403),
        (with_host(&format!("evil.example:{}", server.port)), 403),
        (get("/plan.json", "Origin: http://evil.example\r\n"), 403),
        (get("/plan.json", "Sec-Fetch-Site: cross-site\r\n"), 403),
        (format!("POST / HTTP/1.1\r\nHost: {own}\r\nContent-Length: 5\r\n\r\nhello").into_bytes(), 405),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), 400),
        (b"\r\n\r\n".to_vec(), 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n".to_vec(), 400),
        (get("/\u{fffd}", "").into_iter().map(|byte| if byte == 0xef { 0xff } else { byte }).collect(), 400),
        (get("/plan.json?arg=%FF", ""), 400),
        (get("/plan.json?arg=%", ""), 400),
        (get("/plan.json?arg=%00&arg=--model&arg=mlp(widths=[%00", ""), 422),
        (get(&format!("/plan.json?{}", "arg=h200&".repeat(1500)), ""), 422),
        (get(&format!("/plan.json?arg=--model&arg=mlp(widths={}", "[".repeat(12_000)), ""), 422),
    ];
    for round in 0..5 {
        for (request, expected) in &cases {
            let shown = String::from_utf8_lossy(&request[..request.len().min(80)]).into_owned();
            assert_eq!(server.send(request).0, *expected, "round {round}: {shown}");
        }
        // Clients that go before the answer.
        for _ in 0..20 {
            drop(server.connect());
            server.connect().write_all(&get("/choices.json", "")).expect("the server reads");
        }
    }
    assert_eq!(server.send(&get("/", "")).0, 200);
    #[cfg(target_os = "linux")]
    for _ in 0..100 {
        if [server.entries("fd"), server.entries("task")] <= before {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    #[cfg(target_os = "linux")]
    panic!("files and threads were {before:?}, and are {:?}", [server.entries("fd"), server.entries("task")]);
}

#[test]
fn hanging_clients_are_bounded_in_number_and_time() {
    let project = Project::new("bare");
    let mut server = Server::start(&project, &[]);
    let begin = Instant::now();
    let mut hanging: Vec<_> = (0..16).map(|_| server.connect()).collect();
    for stream in &mut hanging {
        stream.write_all(b"GET / HTTP/1.1\r\nHost:").expect("the server reads");
    }
    // Connections are accepted in order, so that the next one is over the bound.
    let mut refused = String::new();
    server.connect().read_to_string(&mut refused).expect("an answer");
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    // A byte now and then does not gain time.
    let mut slow = hanging.remove(0);
    while begin.elapsed() < Duration::from_secs(30) && slow.write_all(b" ").is_ok() {
        let mut answer = [0; 12];
        slow.set_read_timeout(Some(Duration::from_millis(500))).expect("a time");
        if slow.read_exact(&mut answer).is_ok() {
            assert_eq!(&answer, b"HTTP/1.1 408");
            break;
        }
    }
    assert!((4..15).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
    for stream in &mut hanging {
        assert_eq!(received(stream).0, 408);
    }
    drop((slow, hanging));
    assert_eq!(server.get("choices.json", &[]).0, 200);
    // A hanging client does not keep the server.
    let _hanging = server.connect();
    let kill = Command::new("kill").args(["-INT", &server.child.id().to_string()]).status();
    assert!(kill.expect("kill is there").success());
    let begin = Instant::now();
    assert_eq!(server.child.wait().expect("it ends").code(), Some(0));
    assert!(begin.elapsed() < Duration::from_secs(3));
}
