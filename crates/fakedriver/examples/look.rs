//! Looks at a machine through NVML, as tools do, and prints what it sees: `look devices`, `look processes CARD`, `look mig CARD`,
//! `look links CARD`, `look wait MILLISECONDS`, `look set CARD`.

use std::time::Duration;

use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if let Err(error) = run(&words) {
        println!("error {error}");
        std::process::exit(1);
    }
}

fn run(words: &[&str]) -> Result<(), NvmlError> {
    let nvml = Nvml::builder().lib_path("libnvidia-ml.so.1".as_ref()).init()?;
    let number = |word: &str| word.parse::<u32>().unwrap_or(0);
    match words {
        ["devices"] => {
            println!("driver {} cuda {}", nvml.sys_driver_version()?, nvml.sys_cuda_driver_version()?);
            for index in 0..nvml.device_count()? {
                let device = nvml.device_by_index(index)?;
                let memory = device.memory_info()?;
                println!(
                    "{index} {} {} {} {} of {} power {} heat {} clock {} busy {:?}",
                    device.name()?,
                    device.uuid()?,
                    device.pci_info()?.bus_id,
                    memory.used,
                    memory.total,
                    device.power_usage()?,
                    device.temperature(TemperatureSensor::Gpu)?,
                    device.max_clock_info(Clock::SM)?,
                    device.utilization_rates().map(|u| u.gpu),
                );
            }
        }
        ["processes", card] => {
            let device = nvml.device_by_index(number(card))?;
            for process in device.running_compute_processes()? {
                let used = match process.used_gpu_memory {
                    UsedGpuMemory::Used(bytes) => bytes,
                    UsedGpuMemory::Unavailable => 0,
                };
                println!("process {} {used} {:?}", process.pid, process.gpu_instance_id);
            }
            for sample in device.process_utilization_stats(None)? {
                println!("sample {} {}", sample.pid, sample.sm_util);
            }
        }
        ["mig", card] => {
            let device = nvml.device_by_index(number(card))?;
            let mode = device.mig_mode()?;
            println!("mode {} {}", mode.current, mode.pending);
            for index in 0..device.mig_device_count()? {
                match device.mig_device_by_index(index) {
                    Ok(mig) => println!(
                        "{index} {} {} {} parent {}",
                        mig.name()?,
                        mig.uuid()?,
                        mig.memory_info()?.total,
                        mig.mig_parent_device()?.uuid()?
                    ),
                    Err(NvmlError::NotFound) => break,
                    Err(error) => return Err(error),
                }
            }
        }
        ["links", card] => {
            let device = nvml.device_by_index(number(card))?;
            let others = (0..nvml.device_count()?).filter(|index| *index != number(card));
            for index in others {
                println!("{index} {:?}", device.topology_common_ancestor(nvml.device_by_index(index)?)?);
            }
            println!("link 0 {:?}", device.link_wrapper_for(0).is_active()?);
        }
        ["wait", millis] => {
            let set = nvml.create_event_set()?;
            let set =
                nvml.device_by_index(0)?.register_events(EventTypes::CRITICAL_XID_ERROR, set).map_err(|e| e.error)?;
            println!("ready");
            let event = set.wait(number(millis))?;
            println!("event {:?}", event.event_data);
            std::thread::sleep(Duration::ZERO);
        }
        ["set", card] => {
            let mut device = nvml.device_by_index(number(card))?;
            device.set_power_management_limit(400_000)?;
            println!("limit {}", device.power_management_limit()?);
        }
        _ => println!("what is {words:?}?"),
    }
    Ok(())
}
