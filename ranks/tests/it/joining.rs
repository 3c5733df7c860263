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

/// Joins with processes that have these ranks, numbers of ranks and terms, and returns the error that all of them get.
fn common_error(processes: impl IntoIterator<Item = (usize, usize, Terms)>) -> JoinError {
    let (begin, port) = (Instant::now(), free_port());
    let process = |(rank, world_size, terms)| (launch(rank, world_size, port), terms, limits());
    let joined = join_all(processes.into_iter().map(process).collect());
    let errors: Vec<_> = joined.into_iter().map(Result::unwrap_err).collect();
    assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
    assert!(begin.elapsed() < Duration::from_secs(30));
    errors[0].clone()
}

#[test]
fn a_different_term_is_named_on_all_ranks() {
    let terms = |version: &str| Terms::default().same("model", "mlp").same("Burn's version", version);
    let versions = ["0.22.1", "0.22.1", "0.23.0"].into_iter().enumerate();
    let error = common_error(versions.map(|(rank, version)| (rank, 3, terms(version))));
    let JoinError::Term { rank: 2, term, value, expected, .. } = &error else { panic!("{error}") };
    assert_eq!((term.as_str(), value.as_str(), expected.as_str()), ("Burn's version", "0.23.0", "0.22.1"));
    assert!(error.to_string().contains("Burn's version of rank 2 on "), "{error}");
    let model = |layers| Terms::default().same("model", format!("d_model = 512\nlayers = {layers}\nvocab = 8192"));
    let error = common_error([6, 12].into_iter().enumerate().map(|(rank, layers)| (rank, 2, model(layers))));
    assert!(
        error.to_string().ends_with(
            " is `layers = 12`, but `layers = 6` on rank 0; start the same program with the same \
        settings on all ranks"
        ),
        "{error}"
    );
}

#[test]
fn a_term_that_only_one_rank_has_is_named() {
    for missing in 0..2 {
        let terms = |rank| if rank == missing { Terms::default() } else { Terms::default().same("seed", "7") };
        let error = common_error((0..2).map(|rank| (rank, 2, terms(rank))));
        assert!(matches!(&error, JoinError::Term { term, .. } if term == "seed"), "{error}");
    }
}

#[test]
fn a_gpu_of_two_ranks_is_named() {
    let devices = ["0000:01:00.0", "0000:02:00.0", "0000:01:00.0"].into_iter().enumerate();
    let error = common_error(devices.map(|(rank, gpu)| (rank, 3, Terms::default().distinct_on_host("GPU", gpu))));
    let JoinError::Shared { rank: 2, other: 0, term, value, .. } = &error else { panic!("{error}") };
    assert_eq!((term.as_str(), value.as_str()), ("GPU", "0000:01:00.0"));
}

#[test]
fn two_processes_of_one_rank_are_named() {
    let error = common_error([0, 1, 1].map(|rank| (rank, 3, Terms::default())));
    assert!(matches!(error, JoinError::SameRank { rank: 1, .. }), "{error}");
}

#[test]
fn another_number_of_ranks_is_named() {
    let error = common_error([(0, 2, Terms::default()), (1, 3, Terms::default())]);
    assert!(matches!(error, JoinError::WorldSize { rank: 1, world_size: 3, expected: 2, .. }), "{error}");
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

#[test]
fn ranks_join_at_an_ipv6_address() {
    if TcpListener::bind("[::1]:0").is_err() {
        println!("SKIPPED: this system has no IPv6");
        return;
    }
    for secret in [None, Some(Secret::new("a secret"))] {
        let port = free_port();
        let at = |rank| {
            let address = "::1".to_owned();
            Launch { local_world_size: None, address, secret: secret.clone(), ..launch(rank, 2, port) }
        };
        let results = join_all([0, 1].map(|rank| (at(rank), Terms::default(), limits())).to_vec());
        assert_eq!(results, [Ok(()), Ok(())]);
    }
}

#[test]
fn ranks_join_through_the_network_with_a_secret() {
    let port = free_port();
    // Not counted as local: rank 0 opens the port to the network.
    let launches = [0, 1].map(|rank| Launch { local_world_size: None, ..launch(rank, 2, port) });
    let results = join_all(launches.map(|launch| (launch, Terms::default(), limits())).to_vec());
    assert_eq!(results, [Ok(()), Ok(())]);
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
fn a_closed_port_is_an_error_in_time() {
    let limits = Limits { join: Duration::from_secs(2), ..limits() };
    let begin = Instant::now();
    let error = Group::join(&launch(1, 2, free_port()), Terms::default(), limits).unwrap_err();
    assert!(matches!(error, JoinError::Unreachable { rank: 1, seconds: 2, .. }), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(15));
}

#[test]
fn a_port_in_use_is_an_error_in_time() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let begin = Instant::now();
    let error = join(&launch(0, 2, other.local_addr().unwrap().port())).unwrap_err();
    assert!(matches!(error, JoinError::Bind { .. }), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(30));
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
