//! What parts of a device are worth: the prices of the cutting-stock problem "fewest devices for this demand".

/// All of a device.
pub(super) const WHOLE: usize = 1000;

/// Prices of sizes (in thousandths, each in `1..=1000`) demanded so often, such that the best filling of a whole device is worth 1.
/// By column generation: the basis begins with one size per device, and the knapsack under the current prices finds the next column.
pub(super) fn prices(sizes: &[usize], demand: &[f64]) -> Vec<f64> {
    let n = sizes.len();
    // The inverse of the basis; a column of the basis says how often each size lies on one device.
    let mut inverse = vec![vec![0.0f64; n]; n];
    let mut amounts = vec![0.0f64; n];
    for i in 0..n {
        inverse[i][i] = 1.0 / (WHOLE / sizes[i]) as f64;
        amounts[i] = demand[i] * inverse[i][i];
    }
    // Far more rounds than any demand of a few dozen sizes needs; the prices of an unfinished basis are usable too.
    for _ in 0..2000 {
        let prices = sums_of_columns(&inverse);
        let (value, column) = knapsack(sizes, &prices);
        if value <= 1.0 + 1e-9 {
            return prices;
        }
        let direction: Vec<f64> =
            inverse.iter().map(|row| row.iter().zip(&column).map(|(a, b)| a * b).sum::<f64>()).collect();
        let mut leaving: Option<(usize, f64)> = None;
        for (i, step) in direction.iter().enumerate().filter(|(_, step)| **step > 1e-9) {
            let ratio = amounts[i].max(0.0) / step;
            if leaving.is_none_or(|(_, least)| ratio < least - 1e-12) {
                leaving = Some((i, ratio));
            }
        }
        let Some((out, _)) = leaving else { return prices };
        let pivot = direction[out];
        inverse[out].iter_mut().for_each(|x| *x /= pivot);
        amounts[out] /= pivot;
        let (row, amount) = (inverse[out].clone(), amounts[out]);
        for i in (0..n).filter(|i| *i != out && direction[*i] != 0.0) {
            for (x, r) in inverse[i].iter_mut().zip(&row) {
                *x -= direction[i] * r;
            }
            amounts[i] -= direction[i] * amount;
        }
    }
    sums_of_columns(&inverse)
}

fn sums_of_columns(matrix: &[Vec<f64>]) -> Vec<f64> {
    (0..matrix.len()).map(|j| matrix.iter().map(|row| row[j]).sum()).collect()
}

/// The most valuable filling of one device, and how often each size lies in it.
fn knapsack(sizes: &[usize], prices: &[f64]) -> (f64, Vec<f64>) {
    let mut best = vec![0.0f64; WHOLE + 1];
    let mut last = vec![usize::MAX; WHOLE + 1];
    for room in 1..=WHOLE {
        best[room] = best[room - 1];
        for (i, size) in sizes.iter().enumerate().take_while(|(_, size)| **size <= room) {
            let value = best[room - size] + prices[i];
            if value > best[room] + 1e-12 {
                (best[room], last[room]) = (value, i);
            }
        }
    }
    let mut filling = vec![0.0; sizes.len()];
    let mut room = WHOLE;
    while room > 0 {
        match last[room] {
            usize::MAX => room -= 1,
            i => {
                filling[i] += 1.0;
                room -= sizes[i];
            }
        }
    }
    (best[WHOLE], filling)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_fill_a_device_together_share_its_price() {
        let y = prices(&[320, 650], &[1.0, 1.0]);
        assert!((y[0] + y[1] - 1.0).abs() < 1e-9, "{y:?}");
        // Nothing fits beside 810: it is a whole device.
        let y = prices(&[320, 810], &[1.0, 5.0]);
        assert!((y[1] - 1.0).abs() < 1e-9, "{y:?}");
    }

    #[test]
    fn no_filling_is_worth_more_than_a_device() {
        let sizes = [100, 230, 250, 330, 470, 500, 650, 1000];
        let y = prices(&sizes, &[3.0, 1.0, 7.0, 2.0, 9.0, 4.0, 4.0, 6.0]);
        let (value, _) = knapsack(&sizes, &y);
        assert!((value - 1.0).abs() < 1e-9, "{value} {y:?}");
        assert!(y.iter().all(|p| *p >= -1e-9));
    }
}
