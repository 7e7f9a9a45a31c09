-- Dates and moments that are read by a template.
SELECT to_date('2030-01-02', 'YYYY-MM-DD'), to_date('20300102', 'YYYYMMDD'), to_date('2/1/2030', 'DD/MM/YYYY'), to_date('05 Dec 2030', 'DD Mon YYYY'), to_date('December 5, 2030', 'Month DD, YYYY'), to_date('2030', 'YYYY'), to_date('2030-05', 'YYYY-MM'), to_date(NULL, 'YYYY'), to_date('2030-1-5', 'YYYY-MM-DD'), to_date('5.1.2030', 'DD.MM.YYYY');
-- refused
SELECT to_date('', '');
SELECT to_timestamp('2030-01-02 03:04:05', 'YYYY-MM-DD HH24:MI:SS'), to_timestamp('2030-01-02T03:04:05.678', 'YYYY-MM-DD"T"HH24:MI:SS.MS'), to_timestamp('20300102030405', 'YYYYMMDDHH24MISS'), to_timestamp('2030-01-02 03:04 PM', 'YYYY-MM-DD HH12:MI AM'), to_timestamp('2030-01-02 12:04 am', 'YYYY-MM-DD HH:MI PM'), to_timestamp('2030-01-02 03:04:05.678901', 'YYYY-MM-DD HH24:MI:SS.US'), to_timestamp('2030-01-02 12:30', 'YYYY-MM-DD HH12:MI'), to_timestamp('2030-01-02 3:4', 'YYYY-MM-DD HH24:MI'), to_timestamp('02-JAN-2030', 'DD-MON-YYYY');
SELECT to_date('2030-13-02', 'YYYY-MM-DD');
SELECT to_date('2030-02-30', 'YYYY-MM-DD');
SELECT to_timestamp('2030-01-02 25:00', 'YYYY-MM-DD HH24:MI');
SELECT to_timestamp('2030-01-02 13:00', 'YYYY-MM-DD HH12:MI');
SELECT to_timestamp('2030-01-02 10:61', 'YYYY-MM-DD HH24:MI');
SELECT to_date('0000-01-02', 'YYYY-MM-DD');
-- refused
SELECT to_date('30-01-02', 'YYYY-MM-DD');
-- refused
SELECT to_date('2030-01-02 and more', 'YYYY-MM-DD');
-- refused
SELECT to_date('2030/01/02', 'YYYY-MM-DD');
-- refused
SELECT to_date('30', 'YY');
-- refused
SELECT to_date('2030 045', 'YYYY DDD');
-- refused
SELECT to_timestamp('03:04', 'HH24:MI');
