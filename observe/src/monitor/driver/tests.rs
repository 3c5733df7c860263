use super::Names;
use crate::recording::GpuProcess;

#[test]
#[cfg(target_os = "linux")]
fn processes_are_named_in_the_hosts_namespace() {
    let mut names = Names { is_on_host: true, ..Names::default() };
    let mut processes = [GpuProcess::new(std::process::id()), GpuProcess::new(u32::MAX)];
    names.fill_in(processes.iter_mut());
    assert!(processes[0].name.is_some() && processes[1].name.is_none(), "{processes:?}");
    let mut elsewhere = Names { is_on_host: false, ..Names::default() };
    let mut processes = [GpuProcess::new(std::process::id())];
    elsewhere.fill_in(processes.iter_mut());
    assert_eq!(processes[0].name, None);
}
