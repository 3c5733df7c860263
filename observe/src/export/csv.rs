//! Tables.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::recording::{Record, StepRecord};

use super::figures::{Figure, of_step, phases};
use crate::monitor::csv::{self as columns, quoted};

/// A table that a recording has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Table {
    /// A row for each optimizer step of each rank.
    Steps,
    /// A row for each look at each GPU.
    Gpus,
    /// A row for each look at the host.
    Host,
    /// A row for each figure of the program's own.
    Values,
}

/// A table of a recording as CSV (RFC 4180, lines end with `\n`): a line of names, which have their units in them, and a
/// line for each row. `at_s` is seconds since 1970 (UTC). GPUs and the host have the columns that
/// [`csv_header`](crate::monitor::csv_header) has for them. What nobody knows is left empty.
pub fn csv(records: &[Record], table: Table) -> String {
    let mut text = String::new();
    match table {
        Table::Steps => header(&mut text, &["at_s", "step", "rank"], &step_figures(&StepRecord::new(0.0, 0))),
        Table::Gpus => text = format!("{}\n", columns::gpu_columns()),
        Table::Host => text = format!("at_s,{}\n", columns::host_columns()),
        Table::Values => header(&mut text, &["at_s", "name", "step"], &[("value", None)]),
    }
    let mut uuids = BTreeMap::new();
    for record in records {
        match (table, record) {
            (Table::Steps, Record::Step(step)) => {
                row(&mut text, step.at, &[step.step.to_string(), step.rank.to_string()], &step_figures(step));
            }
            (Table::Gpus, Record::Start(start)) => {
                uuids.extend(start.gpus.iter().filter_map(|gpu| Some(((gpu.gpu, gpu.mig_slot), gpu.uuid.as_deref()?))));
            }
            (Table::Gpus, Record::Gpu(sample)) => {
                let uuid = uuids.get(&(sample.gpu, sample.mig_slot)).copied().unwrap_or_default();
                columns::write_gpu(&mut text, sample, uuid);
                text.push('\n');
            }
            (Table::Host, Record::Host(sample)) => {
                let _ = write!(text, "{:.3}", sample.at);
                columns::write_host(&mut text, sample);
                text.push('\n');
            }
            (Table::Values, Record::Value(value)) => {
                let step = value.step.map(|step| step.to_string()).unwrap_or_default();
                row(&mut text, value.at, &[quoted(&value.name), step], &[("value", Some(value.value))]);
            }
            _ => {}
        }
    }
    text
}

fn step_figures(step: &StepRecord) -> Vec<Figure> {
    of_step(step).into_iter().chain(phases(step)).collect()
}

fn header(text: &mut String, keys: &[&str], figures: &[Figure]) {
    let names: Vec<_> = keys.iter().copied().chain(figures.iter().map(|(name, _)| *name)).collect();
    text.push_str(&names.join(","));
    text.push('\n');
}

fn row(text: &mut String, at: f64, keys: &[String], figures: &[Figure]) {
    // Writing to a string does not fail.
    let _ = write!(text, "{at:.6}");
    for key in keys {
        let _ = write!(text, ",{key}");
    }
    for (_, value) in figures {
        let _ = match value {
            Some(value) => write!(text, ",{value}"),
            None => text.write_char(','),
        };
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use crate::recording::{Gpu, GpuSample, HostSample, Record, Start, StepRecord, Value};

    use super::{Table, csv};

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
        vec![
            Record::Start(start),
            Record::Step(Box::new(step)),
            Record::Gpu(gpu),
            Record::Host(host),
            Record::Value(value),
        ]
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
}
