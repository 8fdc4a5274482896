/* Parallel regions of OpenMP: for each byte that comes, twenty of some 0.2 ms of work, and a byte
 * back. */
#include <unistd.h>

static volatile double sink;

int main(void) {
    char byte;
    while (read(0, &byte, 1) == 1) {
        for (int region = 0; region < 20; region++) {
            double sum = 0;
#pragma omp parallel for reduction(+ : sum)
            for (int i = 0; i < 100000; i++)
                sum += i * 0.5;
            sink = sum;
        }
        if (write(1, &byte, 1) != 1)
            return 1;
    }
    return 0;
}
