//! Groups that do not form, and processes that may not join.

use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use gpu_tuned_ranks::{Group, JoinError, Launch, Limits, Secret, Terms};

use crate::support::{free_port, join, launch, limits};

/// Joins with several processes at one time, and returns their results in the same order.
fn join_all(processes: Vec<(Launch, Terms, Limits)>) -> Vec<Result<(), JoinError>> {
    let start = |(launch, terms, limits): (Launch, Terms, Limits)| {
        // The order of joins is that of the processes.
        thread::sleep(Duration::from_millis(200));
        thread::spawn(move || {
            let group = Group::join(&launch, terms, limits)?;
            group.barrier().unwrap();
            group.finish().unwrap();
            Ok(())
        })
    };
    let joining: Vec<_> = processes.into_iter().map(start).collect();
    joining.into_iter().map(|one| one.join().unwrap()).collect()
}

#[test]
fn differences_are_named_on_all_ranks() {
    let none = Terms::default;
    let version = |version: &str| none().same("model", "mlp").same("Burn's version", version);
    let model = |layers| none().same("model", format!("d_model = 512\nlayers = {layers}\nvocab = 8192"));
    let seed = || none().same("seed", "7");
    let gpu = |gpu: &str| none().distinct_on_host("GPU", gpu);
    let host = gethostname::gethostname().into_string().unwrap();
    // Ranks of each process, their numbers of ranks, and their terms.
    for (ranks, sizes, terms, expected) in [
        (
            &[0, 1, 2][..],
            [3, 3, 3],
            vec![version("0.22.1"), version("0.22.1"), version("0.23.0")],
            "Burn's version of rank 2 on HOST is `0.23.0`, but `0.22.1` on rank 0; start the same program",
        ),
        (
            &[0, 1],
            [2, 2, 0],
            vec![model(6), model(12)],
            "model of rank 1 on HOST is `layers = 12`, but `layers = 6` on rank 0; start the same program",
        ),
        (&[0, 1], [2, 2, 0], vec![none(), seed()], "seed of rank 1 on HOST is `7`, but `not given` on rank 0; start"),
        (&[0, 1], [2, 2, 0], vec![seed(), none()], "seed of rank 1 on HOST is `not given`, but `7` on rank 0; start"),
        (
            &[0, 1, 2],
            [3, 3, 3],
            vec![gpu("0000:01:00.0"), gpu("0000:02:00.0"), gpu("0000:01:00.0")],
            "ranks 0 and 2 on HOST have the same GPU, 0000:01:00.0; give each rank its own",
        ),
        (&[0, 1, 1], [3, 3, 3], vec![none(), none(), none()], "two processes are rank 1, on HOST and on HOST; give"),
        (&[0, 1], [2, 3, 0], vec![none(), none()], "rank 1 on HOST expects 3 ranks, but rank 0 expects 2; start"),
    ] {
        let (begin, port) = (Instant::now(), free_port());
        let processes = ranks.iter().zip(sizes).zip(terms);
        let processes = processes.map(|((rank, size), terms)| (launch(*rank, size, port), terms, limits()));
        let errors: Vec<_> = join_all(processes.collect()).into_iter().map(Result::unwrap_err).collect();
        assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
        assert!(errors[0].to_string().starts_with(&expected.replace("HOST", &host)), "{}\n{expected}", errors[0]);
        assert!(begin.elapsed() < Duration::from_secs(30));
    }
}

#[test]
fn a_wrong_secret_is_refused_and_reported() {
    for secret in [None, Some(Secret::new("another secret"))] {
        let port = free_port();
        let limits = Limits { join: Duration::from_secs(2), ..limits() };
        let wrong = Launch { secret, ..launch(1, 2, port) };
        let processes = [launch(0, 2, port), wrong].map(|launch| (launch, Terms::default(), limits.clone()));
        let results = join_all(processes.to_vec());
        assert!(matches!(results[1], Err(JoinError::WrongSecret { rank: 1, .. })), "{results:?}");
        let error = results[0].as_ref().unwrap_err().to_string();
        assert!(error.contains("refused connections: 1, the last from 127.0.0.1: the secrets differ"), "{error}");
    }
}

#[test]
fn ranks_on_several_hosts_need_a_secret() {
    let several = Launch { local_world_size: Some(1), address: "192.0.2.1".to_owned(), ..launch(1, 2, 1) };
    let error = join(&Launch { secret: None, ..several }).unwrap_err();
    assert!(matches!(error, JoinError::SecretRequired { rank: 1, .. }), "{error}");
}

/// The rank that two runs lack is of the other run, which has the same port and secret.
#[test]
fn ranks_of_another_run_are_refused_and_disturb_nothing() {
    let port = free_port();
    let of_run = |run: &str, rank| Launch { run: Some(run.to_owned()), ..launch(rank, 2, port) };
    let short = Limits { join: Duration::from_secs(2), ..limits() };
    let stranger = thread::spawn({
        let launch = of_run("b", 1);
        move || Group::join(&launch, Terms::default(), short).map(drop)
    });
    let root = thread::spawn({
        let launch = of_run("a", 0);
        move || join(&launch).unwrap()
    });
    let error = stranger.join().unwrap().unwrap_err();
    assert!(matches!(&error, JoinError::Unreachable { rank: 1, .. }), "{error}");
    let expected = "belongs to run `b`, but rank 0 on ";
    assert!(error.to_string().contains(expected) && error.to_string().contains(" to run `a`; wait"), "{error}");
    let second = join(&of_run("a", 1)).unwrap();
    let root = root.join().unwrap();
    // Another run's rank is not taken for a late one of this run.
    let late = Limits { join: Duration::ZERO, ..limits() };
    let error = Group::join(&launch(1, 2, port), Terms::default(), late).unwrap_err();
    assert!(error.to_string().contains("belongs to no run, but rank 0 on "), "{error}");
    let second = thread::spawn(move || second.barrier());
    assert_eq!((root.barrier(), drop(root)), (Ok(()), ()));
    assert_eq!(second.join().unwrap(), Ok(()));
}

/// Without a count of local ranks, rank 0 opens the port to the network if there is a secret.
#[test]
fn ranks_join_at_addresses_of_both_kinds_and_through_the_network() {
    let secret = Some(Secret::new("a secret"));
    for (address, secret) in [("127.0.0.1", secret.clone()), ("::1", None), ("::1", secret)] {
        if TcpListener::bind((address, 0)).is_err() {
            println!("SKIPPED: this system has no {address}");
            continue;
        }
        let (port, address) = (free_port(), address.to_owned());
        let process = |rank| {
            let (address, secret) = (address.clone(), secret.clone());
            let launch = Launch { local_world_size: None, address, secret, ..launch(rank, 2, port) };
            (launch, Terms::default(), limits())
        };
        assert_eq!(join_all([0, 1].map(process).to_vec()), [Ok(()), Ok(())]);
    }
}

#[test]
fn missing_ranks_are_named_on_all_ranks() {
    let port = free_port();
    let limits = Limits { join: Duration::from_secs(2), ..limits() };
    let begin = Instant::now();
    let processes = [0, 2].map(|rank| (launch(rank, 5, port), Terms::default(), limits.clone()));
    let errors: Vec<_> = join_all(processes.to_vec()).into_iter().map(Result::unwrap_err).collect();
    let JoinError::Missing { host, .. } = &errors[0] else { panic!("{}", errors[0]) };
    let expected = JoinError::Missing {
        host: host.clone(),
        missing: "ranks 1, 3, 4".to_owned(),
        joined: 2,
        world_size: 5,
        seconds: 2,
        refused: String::new(),
    };
    assert_eq!(errors, [expected.clone(), expected]);
    assert!(begin.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_closed_port_and_a_port_in_use_are_errors_in_time() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let limits = Limits { join: Duration::from_secs(2), ..limits() };
    let begin = Instant::now();
    let error = Group::join(&launch(1, 2, free_port()), Terms::default(), limits).unwrap_err();
    assert!(matches!(error, JoinError::Unreachable { rank: 1, seconds: 2, .. }), "{error}");
    let error = join(&launch(0, 2, other.local_addr().unwrap().port())).unwrap_err();
    assert!(matches!(error, JoinError::Bind { .. }), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(40));
}

#[test]
fn a_late_process_does_not_disturb_the_group() {
    let port = free_port();
    let other = thread::spawn(move || join(&launch(1, 2, port)).unwrap());
    let root = join(&launch(0, 2, port)).unwrap();
    let other = other.join().unwrap();
    for rank in [1, 7] {
        let error = join(&launch(rank, 2, port)).unwrap_err();
        assert!(matches!(error, JoinError::Late { rank: late, .. } if late == rank), "{error}");
    }
    let other = thread::spawn(move || other.barrier());
    assert_eq!(root.barrier(), Ok(()));
    drop(root);
    assert_eq!(other.join().unwrap(), Ok(()));
}
