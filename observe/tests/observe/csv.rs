//! Tables of a recording.

use gpu_tuned_observe::export::{Table, csv};
use gpu_tuned_observe::recording::{Gpu, GpuSample, HostSample, Record, Start, StepRecord, Value};

fn records() -> Vec<Record> {
    let mut step = StepRecord::new(100.25, 7);
    (step.seconds, step.samples, step.loss, step.drain_s) = (0.5, 64, Some(1.5), Some(0.125));
    let mut gpu = GpuSample::new(100.5, 1);
    (gpu.mig_slot, gpu.utilisation_percent) = (Some(2), Some(98.0));
    let mut start = Start::default();
    let mut known = Gpu::new(1);
    (known.mig_slot, known.uuid) = (Some(2), Some("MIG-1".to_owned()));
    start.gpus.push(known);
    let mut host = HostSample::new(101.0);
    host.cpu_percent = Some(12.5);
    let value = Value::new(102.0, "a \"name\", of two", 3.0);
    vec![Record::Start(start), Record::Step(Box::new(step)), Record::Gpu(gpu), Record::Host(host), Record::Value(value)]
}

#[test]
fn each_table_has_the_rows_of_its_kind() {
    for (table, text) in [
        (
            Table::Steps,
            "at_s,step,rank,seconds,samples,micro_batches,micro_batch,loss,gradient_norm,loss_scale,applied,rescues,\
             loss_cpu_s,queued,prepared,prepared_s,prepared_cpu_s,in_use_bytes,reserved_bytes,waited_s,outside_s,\
             upload_s,loss_s,backward_s,update_s,exchange_s,drain_s\n\
             100.250000,7,0,0.5,64,0,0,1.5,,,1,0,,,,,,,,,,,,,,,0.125\n",
        ),
        (
            Table::Gpus,
            "at_s,gpu,mig_slot,uuid,utilisation_percent,sm_activity_percent,sm_occupancy_percent,\
             tensor_activity_percent,dram_activity_percent,memory_activity_percent,memory_used_bytes,power_w,\
             sm_clock_mhz,temperature_c,pcie_to_gpu_bytes_per_s,pcie_from_gpu_bytes_per_s,power_limit_w,\
             memory_clock_mhz,pcie_generation,pcie_lanes,throttle,trouble\n\
             100.500,1,2,MIG-1,98,,,,,,,,,,,,,,,,,\n",
        ),
        (
            Table::Host,
            "at_s,host_cpu_percent,host_memory_used_bytes,host_process_cpu_percent,host_process_memory_bytes,\
             host_process_busiest_thread_percent\n101.000,12.5,,,,\n",
        ),
        (Table::Values, "at_s,name,step,value\n102.000000,\"a \"\"name\"\", of two\",,3\n"),
    ] {
        assert_eq!(csv(&records(), table), text);
    }
}
