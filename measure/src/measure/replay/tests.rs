use gpu_tuned_train::allocation::log::{self, Event};

use super::lowering::{lower_convolutions, lower_updates};
use super::pools::{Pools, TooLarge};
use super::program::{Allocation, Op, Phase, Program, Recorded, Size, pitch};
use super::trace::aligned;

const MIB: u64 = 1 << 20;
const PHASES: [Phase; 3] = [Phase::Forward, Phase::Backward, Phase::Update];

fn reserved_mib(pools: &Pools) -> u64 {
    pools.reserved() / MIB
}

// What `CubeCL` 0.11.3 expects of its own pools: `allocs_on_correct_page`, `single_arena_reuses_across_sizes`,
// `an_outdated_page_is_released_once_empty`, `other_pools_do_not_move_the_statistic`.
#[test]
fn pools_are_those_of_cubecl() {
    let mut pools = Pools::new(1024 * MIB);
    pools.allocate(0, 4096).expect("small");
    pools.allocate(1, 4 * MIB).expect("grows");
    assert_eq!(reserved_mib(&pools), 8 + 5);

    let mut pools = Pools::new(1024 * MIB);
    pools.allocate(0, 128 * 1024).expect("small");
    pools.free(0);
    pools.allocate(1, 512 * 1024).expect("reuses the page");
    assert_eq!(reserved_mib(&pools), 2);

    let mut pools = Pools::new(1024 * MIB);
    pools.allocate(0, MIB).expect("small");
    pools.allocate(1, 10 * MIB).expect("grows");
    assert_eq!(reserved_mib(&pools), 2 + 11);
    pools.free(0);
    pools.allocate(2, MIB).expect("fits");
    assert_eq!(reserved_mib(&pools), 11);

    let mut pools = Pools::new(1024 * MIB);
    pools.allocate(0, MIB).expect("small");
    pools.allocate_persistent(1, 100 * MIB);
    pools.free(1);
    assert_eq!(reserved_mib(&pools), 2 + 100);
    assert_eq!(pools.allocate(2, 1025 * MIB), Err(TooLarge));
}

#[test]
fn gaps_that_touch_are_one() {
    let mut pools = Pools::new(1024 * MIB);
    for id in 0..4 {
        pools.allocate(id, MIB / 2).expect("small");
    }
    assert_eq!(reserved_mib(&pools), 2);
    for id in [1, 3, 2] {
        pools.free(id);
    }
    pools.allocate(4, 3 * MIB / 2).expect("the three gaps hold it");
    assert_eq!(reserved_mib(&pools), 2);
    pools.allocate(5, MIB / 2).expect("needs a page");
    assert_eq!((reserved_mib(&pools), pools.in_use), (4, 5 * MIB / 2));
}

// As an H200 laid out rows: `tests/models/KEPT.md`.
#[test]
fn rows_are_padded_as_cubecl_pads_them() {
    for (values, bytes, padded) in [(3, 4, 16), (96, 4, 512), (864, 4, 3584), (128, 4, 512), (1, 4, 4), (96, 2, 256)] {
        assert_eq!(pitch(values, bytes), padded, "{values} values of {bytes} bytes");
    }
}

fn recorded(batch: u64, with_scratch: bool) -> Recorded {
    let address = |id: u64| 0x1000 * (id + 1);
    let allocated = |id, bytes, align| Event::Allocated { address: address(id), bytes, align, zeroed: false };
    let mut events = vec![Event::Marked(PHASES[0] as u64)];
    events.extend([allocated(0, 4096 * batch, 16), allocated(1, 1 << 20, 4)]);
    // Packed operands.
    events.push(allocated(2, 1 << 16, 128));
    if with_scratch {
        events.extend([allocated(4, 50_000, 4), Event::Freed { address: address(4) }]);
    }
    // Made in one place, copied to another.
    events.extend([
        allocated(5, 2048 * batch, 1),
        allocated(6, 2048 * batch, 16),
        Event::Freed { address: address(5) },
    ]);
    events.extend([allocated(7, 1024 * batch + 512, 4), Event::Freed { address: address(0) }]);
    events.push(Event::Marked(PHASES[1] as u64));
    Recorded::from_events(&events)
}

fn program(scratch: [bool; 2]) -> Program {
    let [small, large] = [recorded(2, scratch[0]), recorded(4, scratch[1])];
    aligned(&small, &large, [2, 4]).expect("the same steps")
}

#[test]
fn sizes_are_lines_over_the_micro_batch() {
    for scratch in [[false, false], [true, false], [false, true]] {
        let program = program(scratch);
        let made: Vec<_> = program.ops.iter().filter_map(Op::allocated).collect();
        let bytes: Vec<_> = made.iter().map(|id| program.bytes(*id, 100, 4)).collect();
        assert_eq!(bytes, [409_600, 1 << 20, 204_800, 102_912], "{scratch:?}");
        let halves: Vec<_> = made.iter().map(|id| program.bytes(*id, 100, 2)).collect();
        assert_eq!(halves, bytes.iter().map(|bytes| bytes / 2).collect::<Vec<_>>());
    }
}

#[test]
fn steps_that_differ_are_not_aligned() {
    let [small, mut large] = [recorded(2, false), recorded(4, false)];
    large.allocations.push(Allocation { bytes: 1 << 30, align: 4, zeroed: false });
    large.ops.push(Op::Allocate(large.allocations.len() - 1));
    assert!(aligned(&small, &large, [2, 4]).is_none());
}

// A product for each sample, of which each takes the same.
#[test]
fn what_the_backward_pass_frees_is_no_scratch() {
    let recorded = |batch: u64| {
        let address = |id: u64| 0x1000 * (id + 1);
        let mut events = vec![Event::Marked(PHASES[0] as u64)];
        let kept =
            (0..batch).map(|id| Event::Allocated { address: address(id), bytes: 1 << 20, align: 4, zeroed: false });
        events.extend(kept);
        events.push(Event::Marked(PHASES[1] as u64));
        events.extend((0..batch).map(|id| Event::Freed { address: address(id) }));
        Recorded::from_events(&events)
    };
    assert!(aligned(&recorded(2), &recorded(4), [2, 4]).is_none());
}

/// A parameter, made before, and its gradient; the update makes two states and a new value, and scratch.
fn updated(parameter: Size, value_bytes: u64) -> Vec<Op> {
    let same = Size::plain([3072; 2]);
    let [weight, gradient, scratch, first, second, value] = [0, 1, 2, 3, 4, 5];
    let made = [scratch, first, second, value].map(Op::Allocate);
    let freed = [scratch, gradient, weight].map(Op::Free);
    let mut ops = vec![Op::Allocate(weight), Op::Allocate(gradient), Op::Enter(Phase::Update)];
    ops.extend(made.into_iter().chain(freed));
    ops.extend([Op::Enter(Phase::End), Op::Free(first)]);
    let sizes = vec![parameter, same, same, same, same, same];
    let program = Program { ops, sizes, made: Vec::new(), persistent: [weight].into(), batches: [2, 4] };
    lower_updates(program, value_bytes).ops
}

#[test]
fn fused_updates_write_over_their_inputs() {
    let made = |parameter| updated(parameter, 4)[3..].iter().filter_map(Op::allocated).count();
    // The states take the places of gradient and weight; the new value a place of its own.
    assert_eq!(made(Size::plain([3072; 2])), 1);
    // Rows of three values are padded to four: nothing is written over the weight.
    assert_eq!(made(Size::rows([256; 2], 3)), 2);
    // What took the gradient's place is freed as the gradient.
    assert_eq!(updated(Size::plain([3072; 2]), 4).last(), Some(&Op::Free(1)));
}

/// A convolution's forward pass, with lists of the host between its tensors or without.
fn convolved(with_lists: bool) -> Vec<Op> {
    let values = |bytes| (Size::plain(bytes), Allocation { bytes: bytes[0], align: 4, zeroed: true });
    let list = (Size::plain([64; 2]), Allocation { bytes: 64, align: 8, zeroed: false });
    // 32 filters of 16 channels and nine taps, over two and four samples of 64 pixels.
    let tensors = [values([32 * 16 * 9 * 4; 2]), values([8192, 16384]), values([16384, 32768])];
    let (sizes, made): (Vec<_>, Vec<_>) = tensors.into_iter().chain([list; 2]).unzip();
    let [weight, input, output, first, second] = [0, 1, 2, 3, 4];
    let mut ops = vec![Op::Enter(Phase::Forward), Op::Allocate(weight), Op::Allocate(first), Op::Allocate(input)];
    ops.extend([Op::Allocate(second), Op::Allocate(output), Op::Free(input)]);
    ops.extend([Op::Free(second), Op::Free(weight), Op::Free(first), Op::Enter(Phase::End), Op::Free(output)]);
    if !with_lists {
        ops.retain(|op| !op.is_of(&[first, second].into()));
    }
    let program = Program { ops, sizes, made, persistent: [].into(), batches: [2, 4] };
    let lowered = lower_convolutions(program, &[vec![32, 16, 3, 3]], 4);
    lowered.ops.into_iter().filter(|op| !op.is_of(&[first, second].into())).collect()
}

#[test]
fn memory_of_the_host_between_tensors_hides_no_convolution() {
    let output_alone = [Op::Enter(Phase::Forward), Op::Allocate(2), Op::Enter(Phase::End), Op::Free(2)];
    assert_eq!([true, false].map(convolved), [output_alone; 2]);
}

#[test]
fn only_the_watched_thread_is_logged_and_only_while_it_is() {
    let events = log::watched(|| {
        log::mark(7);
        let kept = vec![1_u8; 5000];
        std::thread::scope(|scope| scope.spawn(|| drop(vec![1_u8; 6000])).join()).expect("no panic");
        drop(kept);
    });
    drop(vec![1_u8; 7000]);
    let events = events.expect("few events");
    let sizes = events.iter().filter_map(|event| match event {
        Event::Allocated { bytes, .. } if *bytes >= 5000 => Some(*bytes),
        _ => None,
    });
    assert_eq!(sizes.collect::<Vec<_>>(), [5000]);
    assert_eq!(events[0], Event::Marked(7));
    let Some(Event::Allocated { address, .. }) =
        events.iter().find(|event| matches!(event, Event::Allocated { bytes: 5000, .. }))
    else {
        panic!("not logged")
    };
    assert!(events.contains(&Event::Freed { address: *address }));
}
