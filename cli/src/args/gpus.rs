//! GPUs to plan or to build for.

use clap::builder::NonEmptyStringValueParser;

/// Names of GPUs, as arguments or as an option.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct GpuNames {
    /// GPUs in any spelling, such as `h200`, `RTX 4090` or `rtx4090,h200`
    #[arg(value_name = "GPU", value_parser = NonEmptyStringValueParser::new())]
    names: Vec<String>,
    /// GPUs, as an option; repeatable
    #[arg(long, value_name = "GPU", value_parser = NonEmptyStringValueParser::new())]
    target: Vec<String>,
}

impl GpuNames {
    pub(crate) const fn is_given(&self) -> bool {
        !self.names.is_empty() || !self.target.is_empty()
    }

    /// The words of each item of the list. A comma ends an item; so does an option.
    pub(crate) fn items(&self) -> Vec<Vec<&str>> {
        let mut items = vec![Vec::new()];
        for text in &self.names {
            for (index, part) in text.split(',').enumerate() {
                if index > 0 {
                    items.push(Vec::new());
                }
                items.last_mut().into_iter().for_each(|item| item.extend(part.split_whitespace()));
            }
        }
        items.extend(self.target.iter().flat_map(|text| text.split(',')).map(|part| part.split_whitespace().collect()));
        items.retain(|item| !item.is_empty());
        items
    }
}

/// GPUs to plan for: named ones, or those of this machine.
#[derive(Debug, clap::Args)]
pub(crate) struct TargetArgs {
    #[command(flatten)]
    pub names: GpuNames,
    #[command(flatten)]
    pub here: HereArgs,
}

impl TargetArgs {
    pub(crate) const fn is_given(&self) -> bool {
        self.here.is_given() || self.names.is_given()
    }
}

/// This machine in place of named GPUs.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct HereArgs {
    /// Plan for the GPU that a program takes in this machine, or for its CPU where there is none
    #[arg(long, conflicts_with_all = ["names", "target"])]
    pub here: bool,
    /// Plan for this GPU of the machine, by its number in CUDA's order, or for `all` of them
    #[arg(long, value_name = "NUMBER", value_parser = which, conflicts_with_all = ["names", "target"])]
    pub gpu: Option<WhichGpu>,
}

impl HereArgs {
    /// Returns true if this machine is asked for.
    pub(crate) const fn is_given(self) -> bool {
        self.here || self.gpu.is_some()
    }
}

/// GPU of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhichGpu {
    All,
    Number(usize),
}

fn which(text: &str) -> Result<WhichGpu, String> {
    match text {
        "all" => Ok(WhichGpu::All),
        number => number.parse().map(WhichGpu::Number).map_err(|_| "expected a number, or `all`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::GpuNames;

    #[derive(Parser)]
    struct Args {
        #[command(flatten)]
        names: GpuNames,
    }

    fn items(args: &[&str]) -> String {
        let args = Args::parse_from([&["test"], args].concat());
        args.names.items().iter().map(|words| words.join(" ")).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn a_name_has_several_words_and_commas_and_options_end_it() {
        for (args, expected) in [
            (&[][..], ""),
            (&["RTX", "4090"], "RTX 4090"),
            (&["NVIDIA GeForce RTX 4090"], "NVIDIA GeForce RTX 4090"),
            (&["--target", "RTX 4090"], "RTX 4090"),
            (&["rtx4090", "--target=rtx_4090", "rtx4090,"], "rtx4090 rtx4090; rtx_4090"),
            (&["rtx4070-ti,h200,rtx4090"], "rtx4070-ti; h200; rtx4090"),
            (&["RTX", "4070", "Ti", "H200"], "RTX 4070 Ti H200"),
            (&["RTX 4070 Ti, H200", "rtx4090"], "RTX 4070 Ti; H200 rtx4090"),
            (&["--target", "rtx4070-ti,h200", "--target", "RTX 4090"], "rtx4070-ti; h200; RTX 4090"),
        ] {
            assert_eq!(items(args), expected, "{args:?}");
        }
    }
}
